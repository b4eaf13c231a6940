"""What workers of Ray do for `scoring/ray.py`: each function depends on its arguments and on storage alone.

So Ray can run any of them again where a worker was killed, and the result is the same.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rewardspec.logs.names import Keys
from rewardspec.logs.parts import Part
from rewardspec.logs.rows import BadLog
from rewardspec.rewards.reward import ScoringError
from rewardspec.scoring.accounts import OfActor
from rewardspec.scoring.cache_folder import CacheFolder
from rewardspec.scoring.cache_folder import InFolder as InCache
from rewardspec.scoring.component_cache import ComponentCache
from rewardspec.scoring.kept import of_json, piece_measured, to_json
from rewardspec.scoring.measure import Measured, Names
from rewardspec.scoring.packed import Packed, Ragged, join, pack, plain, size
from rewardspec.scoring.parquet import Kinds, added_field, column_name
from rewardspec.scoring.permission import Allowed
from rewardspec.scoring.scorer import Scorer
from rewardspec.scoring.shuffle import Answers, Rows, Together
from rewardspec.scoring.storage import Piece, Pieces, at
from rewardspec.scoring.table import Table
from rewardspec.scoring.writing import Scored, write_scored
from rewardspec.spec import Spec

CHUNK = 256  # rows that are read at once
ERRORS: Mapping[str, type[Exception]] = {
    kind.__name__: kind for kind in (ScoringError, BadLog, ModuleNotFoundError, OSError)
}


class Source(Protocol):
    """Rows in pieces, by number."""

    def __len__(self) -> int: ...
    def parts(self, piece: int, size: int) -> Iterator[Part]: ...


@dataclass(frozen=True)
class InFiles:
    pieces: Sequence[Piece]

    def __len__(self) -> int:
        return len(self.pieces)

    def parts(self, piece: int, size: int) -> Iterator[Part]:
        yield from self.pieces[piece].parts(size)


@dataclass(frozen=True)
class InBlocks:
    """The blocks of a dataset: references to pyarrow tables."""

    blocks: Sequence[Any]

    def __len__(self) -> int:
        return len(self.blocks)

    def parts(self, piece: int, size: int) -> Iterator[Part]:
        import ray

        first = 0
        named: Any = "the dataset"  # for messages
        for batch in ray.get(self.blocks[piece]).to_batches(max_chunksize=size):
            yield Part(named, first, None, batch)
            first += batch.num_rows


class Kept(Protocol):
    """What was measured of pieces, as JSON."""

    def read(self, piece: int) -> bytes: ...


@dataclass(frozen=True)
class InFolder:
    """Kept in a folder: a file for each piece."""

    address: str

    def read(self, piece: int) -> bytes:
        return (at(self.address) / _file(piece)).read()

    def write(self, piece: int, data: bytes) -> None:
        (at(self.address) / _file(piece)).write(data)

    def there(self) -> set[int]:
        return {int(name[:8]) for name in at(self.address).names() if re.fullmatch(r"\d{8}\.json", name)}


@dataclass(frozen=True)
class InStore:
    """Kept in Ray's object store."""

    refs: Sequence[Any]

    def read(self, piece: int) -> bytes:
        import ray

        data: bytes = ray.get(self.refs[piece])
        return data


def _file(piece: int) -> str:
    return f"{piece:08}.json"


@dataclass(frozen=True)
class Setting:
    """What a worker that measures is given.

    only: the columns that it measures. last: whether no other worker measures more of a piece. folder: where what was
    measured is kept; None hands it back. cache: what functions said in earlier runs.
    """

    spec: Spec
    allowed: Allowed
    names: Names
    only: Sequence[str] | None
    source: Source
    to_parquet: bool
    last: bool
    folder: InFolder | None
    key_hosts: Sequence[str]
    account: Any  # of judges, an actor; None if there are none
    cache: CacheFolder | None = None


class Measuring:
    """A worker that measures pieces: a class for `Dataset.map_batches`, with batches of one piece."""

    def __init__(self, setting: Setting):
        self.setting = setting
        self.scorer: Scorer | None = None
        self.values: InCache | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        piece, earlier, error = int(batch["piece"][0]), bytes(batch["found"][0]), str(batch["error"][0])
        found = b""
        if not error:
            try:
                found = self._measured(piece, earlier)
            except tuple(ERRORS.values()) as one:
                kind = next(name for name, kind in ERRORS.items() if isinstance(one, kind))
                error = json.dumps([kind, str(one)])
        return {"piece": [piece], "found": [found], "error": [error]}

    def _measured(self, piece: int, earlier: bytes) -> bytes:
        given = self.setting
        if self.scorer is None:
            cache = None
            if given.cache is not None:
                self.values = InCache(given.cache)
                cache = ComponentCache(self.values, given.cache.only_failed)
            self.scorer = Scorer(given.spec, given.allowed, only=given.only, cache=cache)
            if given.key_hosts:
                from rewardspec.rewards.judge import allow_key

                allow_key(*given.key_hosts)
            if given.account is not None:
                from rewardspec.rewards.judge.account import share

                share(OfActor(given.account))
        before = of_json(given.spec, earlier) if earlier else None
        parts = given.source.parts(piece, self.scorer.at_once)
        try:
            measured = piece_measured(self.scorer, given.names, parts, before, given.to_parquet and given.last)
        finally:
            if self.values is not None:
                self.values.flush()
        found = to_json(measured)
        if not given.last or given.folder is None:
            return found
        given.folder.write(piece, found)
        return b""


@dataclass
class Head:
    """What the driver knows of measured pieces.

    counts: the rows of each. last: the last step of a good row, or -1. asked: of each, values that functions were asked
    for, and those that a cache had.
    """

    keys: Keys
    counts: dict[int, int] = field(default_factory=dict)
    last: int = -1
    stepped: bool = False
    good: int = 0
    kinds: list[Kinds] = field(default_factory=list)
    asked: dict[int, tuple[int, int]] = field(default_factory=dict)


def keys_of(source: Source, pieces: Sequence[int]) -> Keys:
    """The keys of all rows of some pieces."""
    keys = Keys()
    for piece in pieces:
        for part in source.parts(piece, CHUNK):
            keys.add(part.rows())
    return keys


def head_of(spec: Spec, kept: Kept, pieces: Sequence[int]) -> Head:
    head = Head(Keys())
    for piece in pieces:
        found = of_json(spec, kept.read(piece))
        head.keys.join(found.keys)
        head.counts[piece] = found.count
        head.asked[piece] = found.asked, found.recalled
        good = [step for i, step in enumerate(found.steps) if i not in found.bad]
        head.good += len(good)
        head.last = max([head.last, *good])
        if found.kinds is not None:
            head.kinds.append(found.kinds)
    head.stepped = head.last >= 0
    return head


def shares_of(spec: Spec, kept: Kept, pieces: Sequence[int], how: Together, count: int) -> list[Rows]:
    """The good rows of some pieces, in shares."""
    rows = Rows.joined([Rows.of(piece, of_json(spec, kept.read(piece))) for piece in pieces])
    return rows.shares(how, count)


def split(answers: Answers, outputs: Sequence[Sequence[int]]) -> list[Answers]:
    """The answers for each output, given its pieces."""
    return [answers.of(pieces) for pieces in outputs]


@dataclass
class Tally:
    """Of a column: good rows that miss a value, or that of an item; and the sum and number of the others."""

    missing: int = 0
    total: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, column: Packed, good: Any) -> Tally:
        if isinstance(column, Ragged):
            rows = np.repeat(np.arange(len(column.lengths)), np.maximum(column.lengths, 0))
            missing = np.isnan(column.numbers) & good[rows]
            present = column.numbers[good[rows] & ~missing]
            return cls(len(np.unique(rows[missing])), float(present.sum()), len(present))
        assert isinstance(column, np.ndarray), "measured values are numbers"
        present = column[good & ~np.isnan(column)]
        return cls(int(good.sum()) - len(present), float(present.sum()), len(present))

    def add(self, other: Tally) -> None:
        self.missing, self.total, self.count = (
            self.missing + other.missing,
            self.total + other.total,
            self.count + other.count,
        )


@dataclass
class Written:
    """What became of the rows of an output. bad: reasons by the index of a row. kinds: types, if it needs others."""

    scored: int
    bad: dict[int, str]
    tallies: dict[str, Tally]
    kinds: Kinds | None = None
    block: Any = None  # of a dataset, a pyarrow table


def _table(found: Sequence[Measured], pieces: Sequence[int], answers: Sequence[Answers], listed: bool) -> Any:
    """The rows of an output: a Table, and their advantages."""
    count = sum(one.count for one in found)
    firsts = dict(zip(pieces, np.cumsum([0, *(one.count for one in found)]).tolist(), strict=False))
    good = np.ones(count, np.bool_)
    bad: dict[int, str] = {}
    values: list[Any] = [None] * count
    for piece, one in zip(pieces, found, strict=True):
        bad |= {firsts[piece] + i: reason for i, reason in one.bad.items()}
    for share in answers:
        where = [firsts[piece] + i for piece, i in zip(share.pieces.tolist(), share.places.tolist(), strict=True)]
        for i, value in zip(where, plain(share.values, 0, size(share.values)), strict=True):
            values[i] = value
        bad |= {where[i]: reason for i, reason in share.refused.items()}
    good[list(bad)] = False
    columns = {name: join([one.columns[name] for one in found]) for name in found[0].columns}
    none = np.empty(0, np.int64)
    return Table(good, dict(sorted(bad.items())), none, [], none, columns), pack(values, listed)


def _added(
    spec: Spec, kept: Kept, pieces: Sequence[int], names: Sequence[str], prefix: str, answers: Sequence[Answers]
) -> tuple[Table, dict[str, Packed], dict[str, Tally]]:
    from rewardspec.scoring.score import ADVANTAGE

    found = [of_json(spec, kept.read(piece)) for piece in pieces]
    table, values = _table(found, pieces, answers, spec.program.advantage.level.listed)
    added = {prefix + name: table.columns[name] for name in names} | {prefix + ADVANTAGE: values}
    return table, added, {name: Tally.of(table.columns[name], table.good) for name in names}


@dataclass(frozen=True)
class Target:
    """An output: where it goes, and what it is made of. offset: rows of its file before it. several: more files."""

    folder: str
    aside: str
    name: str
    pieces: Sequence[int]
    offset: int
    several: bool


def written(
    spec: Spec,
    source: InFiles,
    kept: Kept,
    target: Target,
    names: Sequence[str],
    prefix: str,
    kinds: Kinds | None,
    *answers: Answers,
) -> Written:
    """Write the rows of an output, and its bad rows aside."""
    table, added, tallies = _added(spec, kept, target.pieces, names, prefix, answers)
    file = Pieces([source.pieces[i] for i in target.pieces])
    scored = Scored(file, table, added, None if kinds is None else dict(kinds))
    with tempfile.TemporaryDirectory(prefix="rewardspec-") as made:
        here, aside = Path(made, target.name), Path(made, "bad.jsonl")
        write_scored(here, aside, scored)
        if kinds is not None and scored.kinds != kinds:
            return Written(0, {}, {}, scored.kinds)
        for local, folder in ((here, target.folder), (aside, target.aside)):
            if local.exists():
                data = local.read_bytes()
                if local is aside:
                    data = _numbered(data, target.offset, str(file.path) if target.several else None)
                (at(folder) / (Path(target.name).stem + ("" if local is aside else here.suffix))).write(data)
    said = f"{file.path}: " if target.several else ""
    bad = {target.offset + i: said + reason for i, reason in table.bad.items()}
    return Written(int(table.good.sum()), bad, tallies)


def _numbered(lines: bytes, offset: int, file: str | None) -> bytes:
    """Bad rows with their numbers in the whole file, and its name if there are several."""
    name = b"" if file is None else b'"file": ' + json.dumps(file).encode() + b", "

    def number(found: re.Match[bytes]) -> bytes:
        return b"{" + name + b'"row": ' + str(int(found[1]) + offset).encode()

    return re.sub(rb'^\{"row": (\d+)', number, lines, flags=re.MULTILINE)


def block_written(
    spec: Spec,
    source: InBlocks,
    kept: Kept,
    piece: int,
    names: Sequence[str],
    prefix: str,
    *answers: Answers,
) -> Written:
    """A block of a dataset, its good rows with columns added."""
    import pyarrow
    import ray

    table, added, tallies = _added(spec, kept, [piece], names, prefix, answers)
    block = ray.get(source.blocks[piece])
    for name, column in added.items():
        field = added_field(column_name(name, block.schema.names), column)
        block = block.append_column(field, pyarrow.array(plain(column, 0, size(column)), field.type))
    return Written(int(table.good.sum()), table.bad, tallies, block=block.filter(pyarrow.array(table.good)))


def suffix_of(path: str, table: bool) -> str:
    """The suffix of files of output: that of the folder's name, or else of the input's format."""
    suffix = Path(path).suffix.lower()
    return suffix if suffix else ".parquet" if table else ".jsonl"
