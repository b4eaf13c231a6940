"""What reward functions said of rows, kept by many workers in a folder at any address.

Under `FOLDER/VERSION/` each Parquet file has keys and values, those of one worker and some rows. Nothing is changed
that was written: a run reads the files of its functions once, into tables that all workers of a machine share, and adds
files of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from rewardspec.scoring.component_cache import WHAT
from rewardspec.scoring.storage import Place, at
from rewardspec.text.shown import shown

SUFFIX = ".parquet"
EVERY = 60.0  # seconds between two files of a worker within a piece: so much is lost where it is killed
AT_ONCE = 16  # files that are read at the same time
KEY_BYTES = 16

_LOG = logging.getLogger(__name__)


def folder_of(version: str) -> str:
    """The name of the folder of a version."""
    return blake2b(version.encode(), digest_size=8).hexdigest()


def files_of(address: str, version: str) -> list[str]:
    """The names of the files that a version has; none, with a warning, if the folder cannot be read."""
    try:
        return [name for name in (at(address) / folder_of(version)).names() if name.endswith(SUFFIX)]
    except OSError as error:
        _warn(address, error)
        return []


def read_files(address: str, version: str, names: Sequence[str]) -> Any:
    """The keys and values in these files, as a pyarrow Table. A file that cannot be read costs a warning."""
    import pyarrow

    folder = at(address) / folder_of(version)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = list(threads.map(lambda name: _read(folder / name), names))
    return pyarrow.concat_tables([_schema().empty_table(), *(table for table in found if table is not None)])


def joined(*tables: Any) -> Any:
    """One table, sorted by key. Of a key that is there twice a value stays rather than None or a list with None."""
    import pyarrow
    import pyarrow.compute as compute

    large = _schema().set(1, pyarrow.field("value", pyarrow.large_string()))  # 2 GB of texts are not too many
    table = pyarrow.concat_tables([_schema().empty_table(), *tables]).cast(large).combine_chunks()
    without = compute.match_substring_regex(table["value"], "null|NaN").cast(pyarrow.int8())
    keys = _keys(table["key"])
    order = np.lexsort((without.to_numpy(), keys))
    keys = keys[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    return table.take(pyarrow.array(order[first])).combine_chunks()


@dataclass(frozen=True)
class CacheFolder:
    """A folder of values, as workers are given it. tables: a reference to what each version had, by version."""

    address: str
    only_failed: bool
    tables: Mapping[str, Any]


@dataclass
class InFolder:
    """Values kept in a folder, for one worker. What it was given to keep is written by `flush`, or after a minute."""

    folder: CacheFolder
    _known: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    _new: dict[str, dict[str, str]] = field(default_factory=dict)
    _written: float = field(default_factory=time.monotonic)

    def recall(self, version: str, keys: Iterable[str]) -> dict[str, str] | None:
        wanted = list(keys)
        found = {key: self._new[version][key] for key in wanted if key in self._new.get(version, {})}
        known, values = self._table(version)
        if not len(known) or not wanted:
            return found
        asked = np.frombuffer(bytes.fromhex("".join(wanted)), f"V{KEY_BYTES}").view(f"S{KEY_BYTES}")
        places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        hits = np.flatnonzero(known[places] == asked)
        texts = values.take(places[hits]).to_pylist()
        return {wanted[i]: text for i, text in zip(hits.tolist(), texts, strict=True)} | found

    def keep(self, version: str, texts: Mapping[str, str]) -> bool:
        self._new.setdefault(version, {}).update(texts)
        return self.flush() if time.monotonic() - self._written > EVERY else True

    def flush(self) -> bool:
        """Write what is to be kept. Whether it could be; a warning if not."""
        self._written = time.monotonic()
        try:
            for version, texts in self._new.items():
                if texts:
                    _write(at(self.folder.address) / folder_of(version), texts)
                    self._new[version] = {}
        except OSError as error:
            _LOG.warning("%s could not be saved: %s: %s", WHAT, shown(self.folder.address), error)
            self._new.clear()
            return False
        return True

    def _table(self, version: str) -> tuple[Any, Any]:
        """The sorted keys that a version had, and their values."""
        if version not in self._known:
            import ray

            given = self.folder.tables.get(version)
            table = _schema().empty_table()
            if given is not None:
                try:
                    table = ray.get(given)
                except ray.exceptions.RayError as error:  # such as one for lack of memory
                    _warn(self.folder.address, error)
            self._known[version] = _keys(table["key"]), table["value"]
        return self._known[version]


def _schema() -> Any:
    import pyarrow

    return pyarrow.schema([("key", pyarrow.binary(KEY_BYTES)), ("value", pyarrow.string())])


def _keys(column: Any) -> Any:
    """A column of keys as an array, which is not copied."""
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    arrays = [np.frombuffer(one.buffers()[1], f"S{KEY_BYTES}", len(one), one.offset * KEY_BYTES) for one in chunks]
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, f"S{KEY_BYTES}"), *arrays])


def _read(place: Place) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        with place.system.open_input_file(place.path) as file:
            table = pyarrow.parquet.read_table(file)
        if table.schema.equals(_schema()) and not table["key"].null_count and not table["value"].null_count:
            return table
        _warn(place.address, "it has other columns")
    except (pyarrow.ArrowException, OSError) as error:
        _warn(place.address, error)
    return None


def _write(folder: Place, texts: Mapping[str, str]) -> None:
    """A file of keys and values, named by them: a worker that writes them again adds nothing."""
    import pyarrow
    import pyarrow.parquet

    keys = sorted(texts)
    held = [bytes.fromhex(key) for key in keys]
    table = pyarrow.table([held, [texts[key] for key in keys]], schema=_schema())
    name = blake2b(b"".join([*held, *(texts[key].encode() for key in keys)]), digest_size=16).hexdigest()
    out = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, out, compression="zstd", use_dictionary=False)
    folder.make_folder()
    (folder / (name + SUFFIX)).write(out.getvalue().to_pybytes())


def _warn(address: str, error: object) -> None:
    _LOG.warning("the cache of %s cannot be used: %s: %s", WHAT, shown(address), error)
