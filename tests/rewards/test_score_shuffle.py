"""What `score --engine ray` computes apart, put together again: the same as in one place, however rows are divided."""

import json
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.logs.names import Keys
from rewardspec.logs.parts import Part
from rewardspec.rewards.judge.account import Account, Limits, Request
from rewardspec.scoring import run, shuffle, storage
from rewardspec.scoring.kept import of_json, piece_measured, to_json
from rewardspec.scoring.measure import Names
from rewardspec.scoring.moments import InParts
from rewardspec.scoring.packed import plain, size
from rewardspec.scoring.run import families
from rewardspec.scoring.scorer import Scorer
from rewardspec.scoring.shuffle import Rows

SPEC = """
rewardspec: 1
name: right
signals: {{tokens: {{range: [0, .inf]}}}}
components:
  answer: {{use: qa.exact_match, with: {{tag: none, answer: gold}}}}
  brief: tokens <= 4
advantage: {}
"""
ADVANTAGES = {
    "groups": "zscore(total)",
    "moments": "(center(total) - mean(tokens, over=batch)) / (1 + std(abs(center(tokens)), over=batch))",
    "steps": "total - quantile(total, 0.7, over=batch)",
}


def rows_of(dice, count, stepped):
    group = [f"g{i // 4}" if i % 8 < 4 else i // 4 for i in range(count)]
    rows = [{"group": g, "completion": dice.choice("ab"), "gold": "a", "tokens": dice.randrange(9)} for g in group]
    rows = [{**row, "step": i // 16 % 3} if stepped else row for i, row in enumerate(rows)]
    dice.shuffle(rows)
    return rows


def measured(spec, rows, sizes):
    """Pieces of these sizes, measured, written as JSON and read again."""
    scorer, keys = Scorer(spec), Keys()
    keys.add(rows)
    names, first, found = Names.of(Path("rows"), spec, keys, None, "scored/"), 0, []
    for count in sizes:
        lines = [json.dumps(row).encode() for row in rows[first : first + count]]
        parts = [Part(Path("rows"), at, lines[at : at + 3]) for at in range(0, count, 3)]
        found.append(of_json(spec, to_json(piece_measured(scorer, names, parts))))
        first += count
    return found


def in_shares(spec, pieces, count, how):
    """The advantages of all rows, computed in shares."""
    cut = [Rows.of(i, piece).shares(how, count) for i, piece in enumerate(pieces)]
    shares = [Rows.joined(column) for column in zip(*cut, strict=True)]
    if how == "moments":
        known = {}
        for stage in range(InParts(spec).stages):
            known = shuffle.merged(spec, stage, [shuffle.moments(spec, s, stage, known, None) for s in shares], known)
        answers = [shuffle.applied(spec, share, known, None) for share in shares]
    else:
        answers = [shuffle.whole(spec, share, 2) for share in shares]
    found = {}
    for one in answers:
        where = zip(one.pieces.tolist(), one.places.tolist(), strict=True)
        found |= dict(zip(where, plain(one.values, 0, size(one.values)), strict=True))
    return [found[key] for key in sorted(found)], sum(one.groups for one in answers)


@pytest.mark.slow
@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize("how", list(ADVANTAGES))
def test_advantages_in_shares_are_those_in_one_place(how, stepped):
    spec = rewardspec.loads(SPEC.format(ADVANTAGES[how]))
    assert shuffle.together(spec, stepped) == ("all" if how == "steps" and not stepped else how)
    for seed in range(2):
        dice = random.Random(seed)
        rows = rows_of(dice, 48, stepped)
        cuts = sorted(dice.sample(range(1, 48), 4))
        sizes = np.diff([0, *cuts, 48]).tolist()
        expected, groups = in_shares(spec, measured(spec, rows, [48]), 1, "all")
        if how == "steps" and not stepped:
            continue
        found, again = in_shares(spec, measured(spec, rows, sizes), dice.randrange(2, 5), how)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert again == groups


def test_state_needs_all_rows_in_one_place():
    state = "state:\n  usual: {init: 0, range: [0, 1], update: 'clip(mean(brief, over=batch), 0, 1)'}\n"
    assert shuffle.together(rewardspec.loads(SPEC.format("total - usual") + state), True) == "all"


def test_equal_ids_are_in_one_share_whatever_their_type():
    none = np.full(4, -1)
    rows = Rows(none, np.arange(4), [1, 1.0, "1", ("true",)], none, {})
    for count in (2, 3, 7):
        shares = [s.groups for s in rows.shares("groups", count)]
        assert sum(1 in share for share in shares) == 1


def test_pieces_of_lines_are_all_lines(tmp_path, monkeypatch):
    """Split at every size: the lines are those that Python reads."""
    texts = ["", "a", "bb\r", "", "cccc" * 5, "d"]
    for data in ("\n".join(texts), "\n".join(texts) + "\n", "\ufeff" + "\n".join(texts), "\n\n"):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(data.encode())
        expected = [line.rstrip("\n").rstrip("\r") for line in data.removeprefix("\ufeff").split("\n")]
        expected = expected[:-1] if data.endswith("\n") else expected
        for length in (5, 8, 13, 100) if data.startswith("\ufeff") else (1, 2, 3, 5, 8, 13, 100):  # a mark is whole
            monkeypatch.setattr(storage, "PIECE_BYTES", length)
            pieces = storage.pieces_of(f"file://{path}")
            assert [line.decode() for one in pieces for part in one.parts(2) for line in part.lines] == expected


def test_a_folder_is_its_files_in_the_order_of_names(tmp_path):
    (tmp_path / "in" / "more").mkdir(parents=True)
    for name in ("b.jsonl", "a.jsonl", "more/c.jsonl", "_SUCCESS", ".hidden"):
        (tmp_path / "in" / name).write_text('{"a": 1}\n')
    (tmp_path / "in" / "empty.jsonl").touch()
    for address in (tmp_path / "in", f"file://{tmp_path}/in", f"local://{tmp_path}/in"):  # the last is of fsspec
        assert [piece.name for piece in storage.pieces_of(str(address))] == ["a.jsonl", "b.jsonl", "more/c.jsonl"]


def test_an_output_is_complete_or_absent(tmp_path):
    """Renamed on a local disk; moved file by file elsewhere, and `_SUCCESS` last."""
    for scheme in ("file", "local"):
        made, output = (storage.place(f"{scheme}://{tmp_path}/{scheme}-{name}") for name in ("made", "out"))
        made.make_folder()
        (made / "part-0").write(b"x")
        storage.publish(made, output)
        assert output.names() == ["_SUCCESS", "part-0"]
        assert (output / "part-0").read() == b"x"
        with pytest.raises(storage.BadPath, match="exists by now"):
            storage.publish(made, output)


@pytest.mark.parametrize(
    ("address", "says"), [("nope://a/b", "neither pyarrow nor fsspec opens it"), ("gone.jsonl", "nothing at")]
)
def test_an_address_that_cannot_be_read_is_said(address, says):
    with pytest.raises(storage.BadPath, match=says):
        storage.pieces_of(address)


def test_permits_are_even_in_time():
    def waits(limits, *requests):
        account = Account(limits)
        return [account.permit(Request("m", tokens, 0), now).wait for tokens, now in requests]

    assert waits(Limits(requests=60), *((5, now) for now in (0, 0, 0.5, 10, 10))) == [0, 1, 1.5, 0, 1]
    of_tokens = waits(Limits(requests=600, tokens=6000), (100, 0), (1, 0), (1, 0))
    assert of_tokens == pytest.approx([0, 1, 1.1])  # 100 tokens take a second
    assert waits(Limits(), *[(10**9, 0)] * 3) == [0, 0, 0]


def test_functions_that_depend_on_each_other_are_in_one_pool():
    spec = rewardspec.loads("""
rewardspec: 1
components:
  fast: {use: qa.exact_match, with: {tag: none, answer: gold}}
  correct: {use: math.correct}
  format: {use: think.format}
  clear: {use: judge.rubric, with: {template: papo, model: m, only_when: format >= 1}, missing: ignore}
advantage: grpo
""")
    found = families(spec, [])
    assert found == [("light", ["fast"]), ("processes", ["correct"]), ("endpoints", ["format", "clear"])]


def test_workers_look_for_modules_here_only_if_that_is_allowed(monkeypatch, tmp_path):
    """Ray puts the folder in which it is started on the path of its workers."""
    monkeypatch.chdir(tmp_path)
    seen = []
    fake = SimpleNamespace(
        is_initialized=lambda: False, init=lambda **_: seen.append(os.getcwd()), shutdown=lambda: seen.append("ended")
    )
    monkeypatch.setattr(run, "library", lambda: fake)
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_BACKEND_LOG_LEVEL"):
        monkeypatch.setenv(name, "0")
    for trusted in (False, True):
        with run.cluster(trusted):
            assert os.getcwd() == str(tmp_path)
    assert seen[0] != str(tmp_path)
    assert seen[1:] == ["ended", str(tmp_path), "ended"]


def test_ray_is_named_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "spec.yaml").write_text(SPEC.format("grpo"))
    ended = CliRunner().invoke(app, ["score", f"{tmp_path}/spec.yaml", "rows.jsonl", "-o", "out", "--engine", "ray"])
    assert ended.exit_code == 2
    assert "pip install 'rewardspec[ray]'" in ended.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--engine", "ray", "--processes", "2"], "--engine ray has no --processes"),
        (["--requests-per-minute", "5"], "--requests-per-minute: the spec has no judge"),
        (["--engine", "spark"], "there are plain and ray"),
        (["-o", "s3://bucket/out"], "URIs are read with --engine ray"),
        (["--cache", "s3://bucket/kept"], "URIs are read with --engine ray"),
    ],
)
def test_no_option_is_ignored(options, says):
    ended = CliRunner().invoke(app, ["score", "gdpo/math", "rows.jsonl", "-o", "out", *options])
    assert ended.exit_code == 2
    assert says in " ".join(ended.output.split())
