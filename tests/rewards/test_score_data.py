"""`rewardspec score` and the readers of logs: rows keep what they have, and what is wrong with them is said of them."""

import datetime
import json
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.logs.parts import RolloutFile
from rewardspec.logs.rows import BadLog
from rewardspec.prove.replay import read_log, replay

SPEC = """
rewardspec: 1
name: right
signals: {tokens: {range: [0, .inf]}}
components:
  answer: {use: qa.exact_match, with: {tag: none, answer: gold}}
  completion_format: {use: qa.exact_match, with: {tag: none, answer: gold}}
  brief: tokens <= 4
advantage: grpo
"""
ROWS = [
    {"group": i // 4, "completion": c, "gold": "a", "answer": "Paris", "advantage": 7, "format": "md", "tokens": i % 8}
    for i, c in enumerate("abababba" * 3)
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path


def lines(rows):
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def score(source="rows.jsonl", output="out.jsonl", *options, spec="spec.yaml"):
    result = CliRunner().invoke(app, ["score", spec, source, "-o", output, *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def read(path="out.jsonl"):
    return RolloutFile(Path(path)).rows()


def aside(output="out.jsonl"):
    path = Path(f"{output}.bad.jsonl")
    return {row["row"]: row for row in map(json.loads, path.read_text().strip().split("\n"))} if path.exists() else {}


def plain(rows):
    return [{name: value for name, value in row.items() if not name.startswith("scored/")} for row in rows]


# What rows keep


@pytest.mark.parametrize("output", ["out.jsonl", "out.parquet"])
def test_no_column_is_lost(folder, output):
    lines(ROWS)
    assert score(output=output).exit_code == 0
    rows = read(output)
    assert plain(rows) == ROWS
    assert [row["scored/answer"] for row in rows] == [float(row["completion"] == "a") for row in ROWS]
    columns = {name: [row[f"scored/{name}"] for row in rows] for name in ("answer", "completion_format")}
    out = rewardspec.compile("spec.yaml")({**columns, "tokens": [row["tokens"] for row in ROWS]}, groups=4)
    assert [row["scored/advantage"] for row in rows] == pytest.approx(out.advantages.tolist())


def test_groups_are_those_of_the_file(folder):
    """Also where what is computed has the name of the key under the prefix."""
    spec = SPEC.replace("completion_format", "uid")
    Path("spec.yaml").write_text(spec)
    lines([{**{k: v for k, v in row.items() if k != "group"}, "uid": row["group"]} for row in ROWS])
    result = score()
    assert "in 6 groups" in result.output and [row["uid"] for row in read()] == [row["group"] for row in ROWS]


def test_json_lines_stay_to_the_character(folder):
    """Numbers that no float holds, `\\u` escapes, spaces, order, NaN: whatever a reader would make of them."""
    own = ' , "n": 1.10, "big": 12345678901234567890123, "e": 1E400, "z": -0, '
    own += '"u": "\\u00e9é\\ud800", "l": [ 1 ] , "x": NaN '
    texts = [json.dumps(row)[:-1] + own + "}" for row in ROWS]
    Path("rows.jsonl").write_bytes(b"\xef\xbb\xbf" + "".join(f"  {text}\t\r\n" for text in texts).encode())
    assert score().exit_code == 0
    for text, line in zip(texts, Path("out.jsonl").read_text().splitlines(), strict=True):
        assert line.startswith(text[:-1].rstrip() + ', "scored/answer": ') and json.loads(line)
    Path("rows.jsonl").write_text(texts[0] + "\n" + texts[1].replace('"gold": "a"', '"gold": 1.50') + "\n")
    score()
    assert '"gold": 1.50' in Path("out.jsonl.bad.jsonl").read_text() + Path("out.jsonl").read_text()


TABLE = pa.table(
    {
        "group": pa.array([0, 0, 1, 1], pa.int32()),
        "completion": pa.array(["a", "b", "a", "b"]).dictionary_encode(),
        "gold": pa.array(["a"] * 4, pa.large_string()),
        "tokens": pa.array([1, 2, None, 9], pa.uint16()),
        "when": pa.array([datetime.datetime(2026, 1, i + 1, 3, 4, 5) for i in range(4)], pa.timestamp("ms", "UTC")),
        "cost": pa.array([Decimal("1.10"), None, Decimal("2.20"), Decimal("3.30")], pa.decimal128(9, 2)),
        "image": pa.array([b"\x89PNG", None, b"", b"\xff"], pa.binary()),
        "half": pa.array([1.5, None, float("nan"), 2.5], pa.float32()),
        "nested": pa.array([{"a": [1, None]}, None, {"a": []}, {"a": None}], pa.struct([("a", pa.list_(pa.int8()))])),
        "none": pa.nulls(4),
        "map": pa.array([[("k", 1)], [], None, [("k", None)]], pa.map_(pa.string(), pa.int64())),
    }
).replace_schema_metadata({b"huggingface": b'{"info": 1}'})


def test_parquet_keeps_types_nulls_and_metadata(folder):
    pq.write_table(TABLE, "rows.parquet")
    Path("spec.yaml").write_text(
        SPEC.replace("tokens: {range: [0, .inf]}", "tokens: {range: [0, .inf], missing: zero}")
    )
    assert score("rows.parquet", "out.parquet").exit_code == 0
    before, found = pq.read_table("rows.parquet"), pq.read_table("out.parquet")
    added = ["scored/answer", "scored/completion_format", "scored/advantage"]
    assert found.column_names == [*before.column_names, *added]
    assert found.select(before.column_names).schema.equals(before.schema, check_metadata=True)
    for name in before.column_names:
        assert repr(found[name].to_pylist()) == repr(before[name].to_pylist()), name
    assert score("rows.parquet", "out.jsonl").exit_code == 0
    first = read("out.jsonl")[0]
    assert first["image"] == "iVBORw==" and first["when"] == "2026-01-01T03:04:05+00:00" and first["cost"] == "1.10"


def test_json_lines_become_parquet_and_are_the_same_again(folder):
    more = [
        {"mixed": 1, "list": [1, 2], "deep": {"a": {"b": [None, {"c": 1}]}}, "flag": True, "n": 2**53 + 1, "text": "é"},
        {"mixed": "x", "list": [], "deep": {"a": 3}, "flag": None, "n": 2**80, "text": "\u2028"},
        {"mixed": [1], "list": None, "deep": {}, "flag": False, "n": -1, "text": ""},
        {"mixed": None, "list": [None], "deep": None, "flag": True, "n": 0, "text": None},
    ]
    rows = [{**row, **more[i % 4]} for i, row in enumerate(ROWS)]
    lines(rows)
    assert score(output="out.parquet").exit_code == 0
    assert plain(read("out.parquet")) == rows
    assert [type(v) for v in read("out.parquet")[0].values()][:7] == [type(v) for v in rows[0].values()][:7]
    assert score("out.parquet", "again.jsonl", "--prefix", "again/").exit_code == 0
    assert [{k: v for k, v in row.items() if k in rows[0]} for row in read("again.jsonl")] == rows


def test_a_prefix_that_would_write_over_is_refused_before_anything_is_measured(folder):
    lines([{**row, "scored/answer": 1} for row in ROWS])
    result = score()
    assert result.exit_code == 2 and "already has `scored/answer`" in result.output and not Path("out.jsonl").exists()
    assert score("rows.jsonl", "out.jsonl", "--prefix", "").exit_code == 2
    assert score("rows.jsonl", "out.jsonl", "--prefix", "mine_").exit_code == 0
    assert read()[0]["mine_answer"] == 1 and read()[0]["answer"] == "Paris"


@pytest.mark.slow
@pytest.mark.parametrize("output", ["out.jsonl", "out.parquet"])
def test_what_was_scored_can_be_replayed_compared_and_labelled(folder, output):
    lines(ROWS)
    score(output=output)
    spec = rewardspec.load("spec.yaml")
    log = read_log(Path(output), spec)
    assert log.columns["answer"] == [float(row["completion"] == "a") for row in ROWS]
    assert replay(spec, log).rollouts == len(ROWS)
    Path("other.yaml").write_text(SPEC.replace("grpo", "dr_grpo"))
    for command in (["simulate", "spec.yaml"], ["diff", "spec.yaml", "other.yaml"]):
        result = CliRunner().invoke(app, [*command, "--rollouts", output])
        assert result.exit_code in (0, 1) and "24" in result.output, result.output
        assert (
            "no column `completion_format`"
            in CliRunner().invoke(app, [*command, "--rollouts", output, "--prefix", "x/"]).output
        )


def test_label_reads_what_was_scored(folder):
    Path("rc.yaml").write_text(
        "rewardspec: 1\nname: rc\ncomponents: {ok: {use: qa.exact_match, with: {tag: none, answer: gold}}}\n"
        "advantage: grpo\ncondition:\n  tokens: {high: <good>, low: <bad>}\n  prior: {high: 0.5}\n"
        '  label: {high: ok >= 1}\n  template: "{token} {prompt}"\n'
    )
    lines([{"group": i // 4, "prompt": "p", "completion": c, "gold": "a", "ok": "?"} for i, c in enumerate("abba")])
    assert score(spec="rc.yaml").exit_code == 0
    result = CliRunner().invoke(app, ["label", "out.jsonl", "rc.yaml", "-o", "labelled.jsonl"])
    assert result.exit_code == 0, result.output
    assert [row["reward_token"] for row in read("labelled.jsonl")] == ["high", "low", "low", "high"]


# What is wrong with rows and files


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"group": None}, "`group` is missing, so its group is not known"),
        ({"group": float("nan")}, "`group` is missing"),
        ({"step": [1]}, "`step` is [1]: it must be a whole number, 0 or more"),
        ({"step": 2**60}, f"`step` is {2**60}: it must be at most 2^53"),
        ({"step": 1.5}, "`step` is 1.5: it must be a whole number"),
        ({"step": "1"}, "`step` is '1'"),
        ({"step": True}, "`step` is True"),
        ({"step": -1}, "`step` is -1"),
        ({"step": 10**400}, "`step` is 1000000"),
        ({"step": None}, "`step` is missing, so its batch is not known"),
        ({"tokens": [1]}, "`tokens` is [1]: it must be a number"),
        ({"tokens": 10**400}, "`tokens` is too large for a float"),
        ({"tokens": {"a": 1}}, "`tokens` is {'a': 1}: it must be a number"),
        ({"tokens": "4", "group": None}, "`group` is missing, so its group is not known; `tokens` is '4'"),
        ({"completion": None}, "there is no `completion`"),
        ({"completion": 3}, "column `completion`: 3 is neither a text nor a list of chat messages"),
    ],
)
def test_what_is_wrong_with_a_row_is_said_of_it(folder, change, said):
    rows = [{**row, "step": 1.0} for row in ROWS]
    rows[5] |= change
    lines(rows)
    result = score()
    assert result.exit_code == 0, result.output
    assert list(aside()) == [6] and said in aside()[6]["reason"]
    assert aside()[6]["rollout"]["gold"] == "a" and len(read()) == 23
    if "completion" not in change:
        with pytest.raises(BadLog) as error:
            read_log(Path("out.jsonl.bad.jsonl"), rewardspec.load("spec.yaml"), "row")
        Path("log.jsonl").write_text(
            "".join(json.dumps({**r, "answer": 1, "completion_format": 1}) + "\n" for r in rows)
        )
        with pytest.raises(BadLog) as error:
            read_log(Path("log.jsonl"), rewardspec.load("spec.yaml"))
        assert "log.jsonl:6: " in str(error.value) and said.partition(";")[0] in str(error.value)


def test_rows_without_the_key_are_no_group(folder):
    rows = [dict(row) for row in ROWS]
    for i in (0, 5, 9):
        del rows[i]["group"]
    lines(rows)
    score()
    assert list(aside()) == [1, 6, 10] and len(read()) == 21


@pytest.mark.parametrize("prefix", ["scored/", ""])
def test_groups_and_steps_are_never_rewards(folder, prefix):
    """A reward can be called as a group key is; what lies under `rewards` is no key."""
    spec = "rewardspec: 1\ncomponents: {uid: {values: [0, 1]}, b: {values: [0, 1]}}\nadvantage: grpo\n"
    Path("own.yaml").write_text(spec)
    rows = [
        {prefix + "uid": i % 2, "b": i % 2, "input": i // 4, "rewards": {"group": i % 2, "step": 7}} for i in range(8)
    ]
    lines(rows)
    log = read_log(Path("rows.jsonl"), rewardspec.load("own.yaml"))
    assert log.groups == [(0, i // 4) for i in range(8)]
    assert score(spec="own.yaml", output="o.jsonl").exit_code == 0
    assert all(row["scored/advantage"] for row in read("o.jsonl"))  # 0 where a group holds one value
    lines([{name: row[name] for name in (prefix + "uid", "b", "rewards")} for row in rows])
    result = score(spec="own.yaml", output="o.jsonl")
    assert result.exit_code == 2 and "that identifies groups" in result.output
    assert ("use --group-by uid to group by it" in result.output) == (not prefix)


def test_a_row_is_refused_in_words_whatever_its_group_is_called(folder):
    lines([{**row, "group": "What is 2:1? at rollout 0 of group x: y"} for row in ROWS] + [{**ROWS[0], "tokens": -1}])
    assert score().exit_code == 0
    assert list(aside()) == [25] and aside()[25]["reason"] == "column `tokens` is -1: it should be from 0 to inf"


def test_steps_without_a_good_row_do_not_stop_the_others(folder):
    rows = [{**row, "step": i // 8} for i, row in enumerate(ROWS)]
    lines([{**row, "tokens": -1} if row["step"] == 1 else row for row in rows])
    assert score().exit_code == 0
    assert list(aside()) == list(range(9, 17)) and len(read()) == 16
    Path("out.jsonl").write_text("of a run before")
    lines([{**row, "completion": None} for row in rows])
    result = score()
    assert result.exit_code == 1 and "nothing was written to" in result.output and len(aside()) == 24
    assert Path("out.jsonl").read_text() == "of a run before" and not Path("out.jsonl.partial").exists()


def test_rows_left_out_are_kept_where_advantages_cannot_be_computed(folder):
    Path("spec.yaml").write_text(SPEC.replace("grpo", "total / sum(answer, over=batch)"))
    lines([{**row, "completion": "b"} for row in ROWS] + [{**ROWS[0], "completion": None}])
    result = score()
    assert result.exit_code == 2 and "the rewards without advantages are in" in result.output, result.output
    assert len(read()) == 24 and list(aside()) == [25] and "out.jsonl.bad.jsonl" in result.output


def test_whole_steps_in_floats_are_steps(folder):
    Path("spec.yaml").write_text(SPEC.replace("tokens <= 4", "{expr: tokens <= 4, weight: step + 1}"))
    for kind in (int, float):
        lines([{**row, "step": kind(i // 8)} for i, row in enumerate(ROWS)])
        assert score(output=f"{kind.__name__}.jsonl").exit_code == 0
    found = [[row["scored/advantage"] for row in read(f"{kind}.jsonl")] for kind in ("int", "float")]
    assert found[0] == found[1] and len(set(found[0])) > 2


TEXT = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("r.jsonl", b"", "has no rollouts: it is empty"),
        ("r.jsonl", b"\n\n  \n", "has no rollouts: its lines are empty"),
        ("r.jsonl", TEXT.encode("utf-16"), "is UTF-16 text: save it as UTF-8"),
        ("r.jsonl", TEXT.encode("utf-16-be"), "has NUL bytes"),
        ("r.jsonl", b"\xff\xfe\0\0" + TEXT.encode("utf-32-le"), "is UTF-32 text"),
        ("r.jsonl", TEXT.replace("\n", "\r").encode(), "end in CR only"),
        ("r.jsonl", b"group,completion,gold\n1,a,a\n", "looks like CSV"),
        ("r.csv", b"group\tcompletion\n1\ta\n", "looks like CSV"),
        ("r.json", json.dumps(ROWS).encode(), "is a JSON list"),
        ("r.json", json.dumps(ROWS[0], indent=1).encode(), "has JSON objects over several lines"),
        ("r.jsonl", b"3\n4\n", "r.jsonl:1: not a JSON object"),
        ("r.jsonl", b"\x1f\x8b\x08\0", "is compressed (gzip)"),
        ("r.parquet", TEXT.encode(), "is not a Parquet file: it looks like JSON lines"),
        ("r.parquet", b"PAR1 and more", "is not a readable Parquet file"),
    ],
)
def test_files_of_other_kinds_are_told_apart(folder, name, data, said):
    Path(name).write_bytes(data)
    commands = [
        ["score", "spec.yaml", name, "-o", "out.jsonl"],
        ["simulate", "spec.yaml", "--rollouts", name],
        ["diff", "spec.yaml", "spec.yaml", "--rollouts", name],
    ]
    for command in commands:
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 2 and said in result.output, (command, result.output)
    assert not Path("out.jsonl").exists()


def test_parquet_under_any_name_is_parquet(folder):
    pq.write_table(TABLE.slice(0, 2), "rows.jsonl")
    assert score().exit_code == 0 and len(read()) == 2


def test_a_key_that_stands_twice_loses_nothing(folder):
    text = json.dumps(ROWS[0])[:-1] + ', "gold": "b"}'
    Path("rows.jsonl").write_text(TEXT + text + "\n")
    score()
    assert aside()[25]["reason"] == "the key `gold` appears twice" and aside()[25]["text"] == text


STRANGE = [None, True, -1, 0.5, 1e308, 10**400, float("nan"), float("inf"), "", "x", "\ud800", "1", "\0", "a" * 5000]
STRANGE += [[], [1], [[]], {}, {"a": 1}, {"rewards": 1}]
STRANGE += [[{"role": "assistant", "content": "a"}], [{"role": "assistant"}], [{"content": 3}]]


@pytest.mark.parametrize("seed", range(6))
def test_nothing_in_a_row_ends_in_a_traceback(folder, seed):
    draw = random.Random(seed)
    texts = []
    for i in range(120):
        row = {**ROWS[i % 24], "group": i // 4, "step": i // 24}
        for _ in range(draw.choice([0, 0, 1, 2])):
            row[draw.choice([*row, "rewards", "new", "", "\ud800"])] = draw.choice(STRANGE)
        text = json.dumps(row)
        if draw.random() < 0.15:
            at = draw.randrange(len(text))
            text = draw.choice(
                [text[:at], text[:at] + draw.choice('{}[]",:\0\u2028é9') + text[at:], text * 2, "[" * at]
            )
        texts.append(text.encode("utf-8", "surrogateescape") if draw.random() > 0.03 else b"\xff" + text.encode())
    Path("rows.jsonl").write_bytes(b"\n".join(texts))
    output = ("out.jsonl", "out.parquet")[seed % 2]
    result = score(output=output)
    assert result.exit_code in (0, 2), result.output
    if result.exit_code == 0:
        assert len(read(output)) + len(aside(output)) == 120
        assert all(isinstance(row["scored/advantage"], float) for row in read(output))
    for command in (["simulate", "spec.yaml"], ["diff", "spec.yaml", "spec.yaml"]):
        found = CliRunner().invoke(app, [*command, "--rollouts", "rows.jsonl"])
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
