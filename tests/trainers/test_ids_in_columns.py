"""Ids of a data set reach the function as they are: texts, and whole numbers that no float holds."""

import json

import pytest

import rewardspec
from rewardspec.prove.replay import by_step, read_log

SPEC = rewardspec.loads("""\
rewardspec: 1
name: ids
signals: {episode: {id: true}}
components: {correct: {values: [0, 1]}}
advantage: correct - mean(correct, by=episode)
""")
IDS = [["a", "a", "b", "b"], [2**60, 2**60, 2**60 + 1, 2**60 + 1]]


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_ids_of_a_log_are_exact(tmp_path, ids, kind):
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    columns = {"group": ["p"] * 4, "episode": ids, "correct": [0, 1, 1, 1]}
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        parquet.write_table(pyarrow.table(columns), path)
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ((_, out),) = by_step(SPEC, read_log(path, SPEC))
    assert out.advantages.tolist() == [-0.5, 0.5, 0, 0]


@pytest.mark.parametrize("ids", IDS)
def test_trl_takes_a_column_of_ids(ids):
    datasets = pytest.importorskip("datasets")
    from rewardspec.adapters.trl.checks import _plain

    data = datasets.Dataset.from_dict({"episode": ids, "lists": [[1]] * 4})
    assert _plain(data, "episode", "id") and not _plain(data, "lists", "id")
    out = rewardspec.compile(SPEC)({"episode": data["episode"], "correct": [0, 1, 1, 1]}, 4)
    assert out.advantages.tolist() == [-0.5, 0.5, 0, 0]
