"""A source that is scored by the workers of Ray: measured piece by piece, brought together by group, computed."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from rewardspec.logs.names import Keys
from rewardspec.logs.parts import BATCH
from rewardspec.logs.rows import BadLog
from rewardspec.rewards.judge.account import Account
from rewardspec.rewards.reward import ScoringError
from rewardspec.scoring import remote
from rewardspec.scoring.accounts import on_cluster
from rewardspec.scoring.cache_folder import CacheFolder, files_of, joined, read_files
from rewardspec.scoring.component_cache import version_of
from rewardspec.scoring.measure import Names
from rewardspec.scoring.moments import InParts
from rewardspec.scoring.permission import Allowed
from rewardspec.scoring.processes import cores
from rewardspec.scoring.score import check_names
from rewardspec.scoring.scorer import Scorer
from rewardspec.scoring.shuffle import Answers, Known, Rows, Together, applied, merged, moments, together, whole
from rewardspec.scoring.storage import Place, place
from rewardspec.scoring.versions import versions
from rewardspec.spec import Spec

TOGETHER = 16  # pieces in a task, and in a file of output
SHARE = 500_000  # rows that a task computes advantages of, about
OBJECT_STORE = 512 << 20  # bytes, of a cluster of this machine alone
CACHE_FILES = 256  # of a cache that a task reads
TRIES = 20  # of a task whose worker ends

Progress = Callable[[int, int], None]


def library() -> Any:
    """Ray, with Ray Data. Raises ModuleNotFoundError with what to install."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise ModuleNotFoundError("--engine ray needs Ray: pip install 'rewardspec[ray]'") from None
    return ray


@contextmanager
def cluster(trusted: bool) -> Iterator[None]:
    """Ray, started: the one that this process has, that at RAY_ADDRESS, or one of this machine that ends with it.

    trusted: whether workers may import from the folder where this process was started, as Ray has them do.
    """
    ray = library()
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns of what Ray Data itself does
    here = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="rewardspec-") as empty:
        try:
            if not trusted:
                os.chdir(empty)  # Ray puts the folder of this moment on the path of its workers
            if os.environ.get("RAY_ADDRESS"):
                ray.init(logging_level=logging.ERROR)
            else:
                store = min(OBJECT_STORE, _shared_memory() // 3)
                ray.init(
                    address="local",
                    num_cpus=cores(),
                    include_dashboard=False,
                    object_store_memory=max(store, 80 << 20),
                    logging_level=logging.ERROR,
                )
        finally:
            os.chdir(here)
        try:
            yield
        finally:
            ray.shutdown()


def _shared_memory() -> int:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return OBJECT_STORE * 3
    return found.f_bavail * found.f_frsize


def families(spec: Spec, own: Collection[str]) -> list[tuple[str, list[str]]]:
    """The columns that each pool measures, light ones first: `light`, `processes`, `endpoints`.

    Functions that depend on each other are in one pool, the heaviest of theirs: columns of one list, and those that an
    `only_when` compares. own: columns of the user's own functions; these are light.
    """
    pool = {name: name for name in spec.uses}

    def root(name: str) -> str:
        while pool[name] != name:
            name = pool[name]
        return name

    lists: dict[str, str] = {}
    for name, use in spec.uses.items():
        compared = [other for other in spec.compared(name) if other in pool] if use.only_when is not None else []
        with_list = [lists.setdefault(use.of, name)] if use.of is not None else []
        for other in (*compared, *with_list):
            pool[root(other)] = root(name)
    order = ("light", "processes", "endpoints")
    heaviest: dict[str, int] = {}
    for name, use in spec.uses.items():
        family = 0
        if name not in own and use.reward is not None and use.reward.many:
            family = 2 if use.reward.name.startswith("judge.") else 1
        heaviest[root(name)] = max(heaviest.get(root(name), 0), family)
    found = [(order[i], [name for name in pool if heaviest[root(name)] == i]) for i in range(len(order))]
    return [(family, names) for family, names in found if names] or [("light", [])]


@dataclass
class Run:
    """A source that is being scored. See `score`."""

    scorer: Scorer
    source: Any  # InFiles or InBlocks
    allowed: Allowed
    prefix: str
    group_by: str | None
    named: str
    to_parquet: bool
    account: Account | None
    key_hosts: Sequence[str]
    progress: Progress = lambda done, of: None
    cache: str | None = None
    only_failed: bool = False
    head: remote.Head = field(init=False)
    kept: Any = None  # InFolder or InStore
    resumed: int = 0
    asked: int = 0
    recalled: int = 0

    @cached_property
    def shared_spec(self) -> Any:
        """A reference to the spec: tasks get it instead of a copy each."""
        return library().put(self.scorer.spec)

    @cached_property
    def shared_source(self) -> Any:
        """A reference to the source, likewise."""
        return library().put(self.source)

    @property
    def chunks(self) -> list[list[int]]:
        return [list(range(i, min(i + TOGETHER, len(self.source)))) for i in range(0, len(self.source), TOGETHER)]

    def measure(self, folder: Place | None) -> None:
        """Measure all pieces. Names are chosen by the first rows, and again by all if a later key changes them."""
        if self.scorer.spec.made is None:
            raise ScoringError(f"{self.scorer.spec.name} is a variation without a text of its own: workers read texts")
        first = Keys()
        for part in self.source.parts(0, BATCH):
            first.add(part.rows())
            break
        try:
            names = self._choose(first)
        except BadLog:
            task = task_of(remote.keys_of)
            names = self._choose(_joined(got([task.remote(self.shared_source, chunk) for chunk in self.chunks])))
        while True:
            self._measure(names, folder)
            again = self._choose(self.head.keys) if self.head.keys.top else names
            if again == names:
                return
            names = again

    def _choose(self, keys: Keys) -> Names:
        path = cast(Path, self.named)  # only messages show it
        check_names(path, list(keys.top), self.scorer.names, self.prefix)
        return Names.of(path, self.scorer.spec, keys, self.group_by, self.prefix)

    def _measure(self, names: Names, folder: Place | None) -> None:
        count = len(self.source)
        kept = None
        if folder is not None:
            kept = remote.InFolder((folder / self._identity(names)).address)
            place(kept.address).make_folder()
        before = kept.there() if kept is not None else set()
        refs: list[Any] = [None] * count
        missing = [i for i in range(count) if i not in before]
        self.progress(len(before), count)
        with on_cluster(self.account) as account:
            for done, (piece, found) in enumerate(self._measured(names, missing, kept, account), len(before) + 1):
                if kept is None:
                    refs[piece] = library().put(found)
                self.progress(done, count)
        self.kept = kept or remote.InStore(refs)
        task = task_of(remote.head_of)
        heads = got([task.remote(self.shared_spec, self.kept, chunk) for chunk in self.chunks])
        counts = {piece: rows for head in heads for piece, rows in head.counts.items()}
        self.head = remote.Head(
            _joined([head.keys for head in heads]),
            counts,
            max(head.last for head in heads),
            any(head.stepped for head in heads),
            sum(head.good for head in heads),
            [kinds for head in heads for kinds in head.kinds],
        )
        here = [pair for head in heads for piece, pair in head.asked.items() if piece not in before]
        self.asked, self.recalled = sum(asked for asked, _ in here), sum(recalled for _, recalled in here)
        self.resumed = sum(counts[piece] for piece in before if piece in counts)

    @cached_property
    def cached(self) -> CacheFolder | None:
        """What functions said in earlier runs, shared by all workers."""
        if self.cache is None:
            return None
        tables = {}
        for name, use in self.scorer.uses.items():
            version = version_of(use, self.scorer.own.get(name))
            if version is None or version in tables:
                continue
            names = files_of(self.cache, version)
            parts = [names[i : i + CACHE_FILES] for i in range(0, len(names), CACHE_FILES)]
            read = [task_of(read_files).remote(self.cache, version, part) for part in parts]
            if read:
                tables[version] = task_of(joined).remote(*read)
        # Before workers are started: these have all cores, and one that waited for a table would wait for ever.
        if tables:
            library().wait(list(tables.values()), num_returns=len(tables))
        return CacheFolder(self.cache, self.only_failed, tables)

    def _identity(self, names: Names) -> str:
        """What was measured under one identity is what would be measured again."""
        pieces = [[piece.name, piece.start, piece.stop, piece.size, piece.changed] for piece in self.source.pieces]
        said: list[Any] = [self.scorer.spec.fingerprint, versions(self.scorer.uses, self.scorer.own), pieces]
        said += [[names.group, names.step, dict(names.held), self.to_parquet]]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def _measured(self, names: Names, pieces: Sequence[int], kept: Any, account: Any) -> Iterator[tuple[int, bytes]]:
        """Each piece with what was measured of it, in any order. account: an actor."""
        ray = library()
        if not pieces:
            return
        stages = families(self.scorer.spec, list(self.scorer.own))
        machines = sum(1 for node in ray.nodes() if node["Alive"])
        with _quiet(ray):
            rows = [{"piece": piece, "found": b"", "error": ""} for piece in pieces]
            dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
            for i, (family, only) in enumerate(stages):
                setting = remote.Setting(
                    self.scorer.spec,
                    self.allowed,
                    names,
                    only if len(stages) > 1 else None,
                    self.source,
                    self.to_parquet,
                    i == len(stages) - 1,
                    kept,
                    self.key_hosts,
                    account,
                    self.cached,
                )
                light = family == "light"
                most = int(ray.cluster_resources().get("CPU", 1)) if light else machines
                dataset = dataset.map_batches(
                    remote.Measuring,
                    batch_size=1,
                    fn_constructor_args=(setting,),
                    compute=ray.data.ActorPoolStrategy(min_size=1, max_size=max(1, min(most, len(pieces)))),
                    num_cpus=1 if light else 0,  # the others have processes of their own, or wait
                )
            for row in dataset.iter_rows():
                if row["error"]:
                    kind, text = json.loads(row["error"])
                    raise remote.ERRORS[kind](text)
                yield int(row["piece"]), bytes(row["found"])

    def answers(self, total_steps: int | None, outputs: Sequence[Sequence[int]]) -> tuple[list[list[Any]], int]:
        """References to the Answers of each output, and how many groups there are. Raises BadLog."""
        spec = self.scorer.spec
        how = together(spec, self.head.stepped)
        last = total_steps or (self.head.last if self.head.last >= 0 else None)
        count = 1 if how == "all" else max(1, min(-(-self.head.good // SHARE), 4096))
        return self._computed(how, count, last, outputs)

    def _computed(
        self, how: Together, count: int, last: int | None, outputs: Sequence[Sequence[int]]
    ) -> tuple[list[list[Any]], int]:
        spec = self.scorer.spec
        shares_of = task_of(remote.shares_of, count)
        cut = [_list(shares_of.remote(self.shared_spec, self.kept, chunk, how, count), count) for chunk in self.chunks]
        gather = task_of(_gathered)
        shares = [gather.remote(*column) for column in zip(*cut, strict=True)]
        try:
            if how == "moments":
                known: Known = {}
                task = task_of(moments)
                for stage in range(InParts(spec).stages):
                    found = got([task.remote(self.shared_spec, share, stage, known, last) for share in shares])
                    known = merged(spec, stage, found, known)
                made = [task_of(applied).remote(self.shared_spec, share, known, last) for share in shares]
            else:
                made = [task_of(whole).remote(self.shared_spec, share, last) for share in shares]
            groups = sum(got([task_of(_groups_of).remote(one) for one in made]))
        except ValueError:  # a row that the spec refuses: where all rows are, it is known whether others go on
            if how == "all" or (count == 1 and how != "moments"):
                raise
            return self._computed("all", 1, last, outputs)
        split = task_of(remote.split, len(outputs))
        parts = [_list(split.remote(one, outputs), len(outputs)) for one in made]
        return [list(column) for column in zip(*parts, strict=True)], groups


def _joined(keys: Sequence[Keys]) -> Keys:
    found = Keys()
    for one in keys:
        found.join(one)
    return found


def _gathered(*parts: Rows) -> Rows:
    return Rows.joined(parts)


def _groups_of(answers: Answers) -> int:
    return answers.groups


def task_of(function: Callable[..., Any], returns: int = 1) -> Any:
    """A function as a task of Ray, with so many results."""
    task = library().remote(function)
    return task.options(num_returns=returns, max_retries=TRIES)


def _list(refs: Any, count: int) -> list[Any]:
    """References to the items of a task's list."""
    return [task_of(_only).remote(refs)] if count == 1 else list(refs)


def _only(items: Sequence[Any]) -> Any:
    return items[0]


def got(refs: Any) -> Any:
    """The results of tasks. Raises what they raised."""
    ray = library()
    try:
        return ray.get(refs)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ValueError | OSError | ModuleNotFoundError):
            raise error.cause from None
        raise


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Ray Data without bars and messages of its own."""
    context, log = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    before = (context.enable_progress_bars, log.level)
    context.enable_progress_bars = False
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars = before[0]
        log.setLevel(before[1])
