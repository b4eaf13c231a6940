"""What docs/logs.md and memory promise."""

import json
import re
import tracemalloc

import pytest
from places import ROOT

from rewardspec.logs.open import open_run
from rewardspec.logs.records import LONGEST_LINE
from rewardspec.logs.registry import registered
from rewardspec.logs.rows import DEEPEST
from rewardspec.logs.steps import LARGEST

PAGE = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")


def test_every_format_is_on_the_page():
    table = PAGE.split("## Formats")[1].split("## Columns")[0]
    assert set(re.findall(r"^\| `([a-z][a-z-]*)` \|", table, re.M)) == set(registered())


def test_every_format_cites_what_writes_it():
    import importlib

    for form in registered().values():
        module = importlib.import_module(form.read.__module__)
        assert form.name in ("table", "rewardspec") or "Source: " in module.__doc__


def test_limits_are_those_of_the_page():
    assert f"{LARGEST:,} rollouts" in PAGE
    assert f"{LONGEST_LINE // 2**20} MiB" in PAGE
    assert f"{DEEPEST} levels" in PAGE


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_one_step_is_held_in_memory(tmp_path, kind):
    """40 steps of 0.5 MB, with less than 3 MB at any time."""
    rows = ({"step": s, "group": i // 8, "completion": f"{s} {i} " + "x" * 2000} for s in range(40) for i in range(256))
    path = tmp_path / f"r.{kind}"
    if kind == "jsonl":
        with open(path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(pa.Table.from_pylist(list(rows)), path)
        before = pa.total_allocated_bytes()
    open_run([path], format="table")  # what is imported and cached
    tracemalloc.start()
    sizes = []
    for step in open_run([path], format="table").steps():
        sizes.append(len(step))
        assert kind == "jsonl" or pa.total_allocated_bytes() - before < 8_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sizes == [256] * 40
    assert peak < 3_000_000
