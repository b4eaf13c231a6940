"""`rewardspec score` with judges: counted before and after, under a budget, in batches of criteria."""

import asyncio
import json
import math
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from judge_server import Reply, failed, said, serving, surroundings, warnings
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.logs.parts import RolloutFile
from rewardspec.rewards.judge import Account, Budget, Limits, Price, rubric
from rewardspec.rewards.judge.account import Request
from rewardspec.scoring.accounts import AccountFile

pytestmark = pytest.mark.usefixtures("surroundings")
__all__ = ["surroundings"]

SPEC = """rewardspec: 1
name: judged
components:
  right: {{use: qa.exact_match, with: {{tag: none, answer: gold}}}}
  clear:
    use: judge.rubric
    with: {{template: "{{completion}}", scores: [0, 1], model: m, url: "{url}", only_when: right >= 1{more}}}
    missing: ignore
advantage: grpo
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spec(server, **more):
    more = {"cache": "none", **more}
    Path("spec.yaml").write_text(SPEC.format(url=server.url, more="".join(f", {n}: {v}" for n, v in more.items())))


def write(completions, path="rows.jsonl", **more):
    rows = [
        {"group": i // 4, "prompt": "p", "completion": c, "gold": "yes 1", **more} for i, c in enumerate(completions)
    ]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def with_usage(text, prompt=100, completion=7):
    reply = said(text)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return Reply(body=json.dumps({**json.loads(reply.body), "usage": usage}).encode())


def score(*options, spec="spec.yaml", output="out.jsonl"):
    given = ["score", spec, "rows.jsonl", *(["-o", output] if output else []), *options]
    return CliRunner().invoke(app, given)


def as_json(*options, status=0, **more):
    ended = score("--format", "json", *options, **more)
    assert ended.exit_code == status, ended.output
    return json.loads(ended.stdout)


def rows(path="out.jsonl"):
    return RolloutFile(Path(path)).rows()


# What it would ask


@pytest.mark.slow
def test_a_dry_run_counts_the_calls_that_a_run_makes_and_makes_none(folder):
    write(["yes 1", "no", "yes 1", "yes 1 "] * 30)  # equal requests are one where answers are cached
    Path("odd.jsonl").write_text(Path("rows.jsonl").read_text() + "nonsense\n")
    with serving(lambda *_: with_usage("Score: 1")) as server:
        for cache, requests in (("none", 2), (str(folder), 2)):
            spec(server, cache=cache, max_tokens=50)
            found = as_json("--dry-run", "--price", "2,10", output=None)
            assert server.asked == [] and not Path("judge.sqlite").exists()
            assert as_json("--dry-run", "--price", "2,10", "--engine", "ray", output=None) == found
            one = found["judges"]["clear"]
            assert (found["rows"], one["rows"], one["unsure"], one["requests"], one["recalled"]) == (
                120,
                90,
                0,
                requests,
                0,
            )
            score()
            assert len(server.asked) == one["calls"]
            body = json.dumps(server.asked[0]).encode()
            assert abs(one["prompt_tokens"] - 2 * len(body) // 4) <= 2 and one["completion_tokens"] == 2 * 50
            assert one["cost_at_most"] == pytest.approx((2 * one["prompt_tokens"] + 10 * 100) / 1e6)
            server.asked.clear()
        again = as_json("--dry-run", output=None)["judges"]["clear"]
        assert (again["requests"], again["recalled"], again["calls"], again["prompt_tokens"]) == (2, 2, 0, 0)
        Path("rows.jsonl").write_text(Path("odd.jsonl").read_text())
        ended = score("--dry-run", output=None)
        assert "121 rows, of which 1 would be skipped" in ended.output and "cost of m is not known" in ended.output
    assert sorted(path.name for path in folder.glob("out*")) == ["out.jsonl"]


@pytest.mark.slow
def test_what_depends_on_an_answer_is_an_upper_bound_and_said_to_be(folder):
    """A gate by another judge is open or closed: the dry run does not know, and the run asks no more."""
    write(["yes 1", "no", "1", "0"] * 5)
    with serving(lambda text, _: with_usage(f"Score: {int('1' in text)}")) as server:
        spec(server, cache=str(folder))
        more = f"""  deep:
    use: judge.rubric
    with: {{template: "deep {{completion}}", scores: [0, 1], model: big, url: "{server.url}", cache: none,
           max_tokens: null, only_when: clear >= 1}}
    missing: ignore
  mine: {{python: "not_there:mine", values: [0, 1], missing: ignore}}
advantage: grpo
"""
        text = Path("spec.yaml").read_text().replace("only_when: right >= 1, ", "").replace("advantage: grpo\n", more)
        Path("spec.yaml").write_text(text)
        found = as_json("--dry-run", output=None)
        assert server.asked == [] and found["own_functions"] == ["mine"]
        clear, deep = found["judges"]["clear"], found["judges"]["deep"]
        assert (clear["rows"], clear["unsure"], clear["requests"]) == (20, 0, 4)
        assert (deep["rows"], deep["unsure"], deep["reads"]) == (20, 20, ["clear"])
        assert deep["completion_tokens"] is None and deep["cost_at_most"] is None
        printed = " ".join(score("--dry-run", "--price", "1,1", output=None).output.split())
        assert "deep: at most, because `only_when` reads `clear`, not known before the run for 20 rows" in printed
        assert "no end" in printed and "mine: a function of your own: not called" in printed


def test_a_dry_run_knows_what_the_caches_have(folder):
    write([f"yes {i % 3}" for i in range(12)], gold=["yes 0", "yes 1", "yes 2"])
    with serving(lambda text, _: with_usage("Score: 1" if "2" not in text else "none")) as server:
        spec(server)
        assert score("--cache", "kept.sqlite").exit_code == 0
        write([f"yes {i % 4}" for i in range(16)], gold=["yes 0", "yes 1", "yes 2", "yes 3"])
        before = {path: path.read_bytes() for path in folder.glob("kept*")}
        one = as_json("--dry-run", "--cache", "kept.sqlite", output=None)["judges"]["clear"]
        assert (one["kept"], one["rows"], one["requests"]) == (12, 4, 1)
        one = as_json("--dry-run", "--cache", "kept.sqlite", "--only-failed", output=None)["judges"]["clear"]
        assert (one["kept"], one["rows"], one["requests"]) == (8, 8, 2)  # `yes 2` got no score
        assert before == {path: path.read_bytes() for path in folder.glob("kept*")}
        as_json("--dry-run", "--cache", "other", output=None)
        assert not Path("other").exists()


# What it asked


@pytest.mark.slow
def test_tokens_are_those_that_replies_name(folder):
    """100 tokens read and 7 written in a reply; one reply does not say, one call ends without a reply."""
    write(["yes 1", "yes 2", "yes 3", "yes 4"], gold=[f"yes {i}" for i in range(1, 5)])

    def answer(text, before):
        if text == "yes 1":
            return failed(503) if not before else with_usage("Score: 1")
        if text == "yes 2":
            return said("Score: 0")
        return Reply(hang_up=True) if text == "yes 3" and not before else with_usage("Score: 1")

    with serving(answer) as server:
        spec(server)
        found = as_json("--price", "m=1000,10000")
        used = found["judges"]["m"]
        assert used == {
            "calls": 6, "retries": 2, "recalled": 0, "prompt_tokens": 300, "completion_tokens": 21, "unsaid": 2,
            "cost": pytest.approx(0.3 + 0.21),
        }  # fmt: skip
        assert found["rewards"]["clear"] == {"mean": 0.75, "missing": 0} and found["budget_spent"] == {}
        ended = score()  # no price, no cost
        assert "1 of 4 calls did not say their tokens" in ended.output
        assert re.search(r"m +4 +0 +0 +300 +21 +-", ended.output)
    with serving(lambda *_: said("Score: 1")) as server:
        spec(server)
        ended = score("--price", "1,1")
        assert re.search(r"m +4 +0 +0 +- +- +-", ended.output), ended.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "usage",
    [None, 3, [], {}, {"prompt_tokens": 5}, {"prompt_tokens": -5, "completion_tokens": 1},
     {"prompt_tokens": 1e300, "completion_tokens": 1}, {"prompt_tokens": "5", "completion_tokens": 1},
     {"prompt_tokens": 10**30, "completion_tokens": 1}, {"prompt_tokens": True, "completion_tokens": 1}],
)  # fmt: skip
def test_usage_that_is_no_count_is_none(usage, folder):
    write(["yes 1"])
    reply = Reply(body=json.dumps({**json.loads(said("Score: 1").body), "usage": usage}).encode())
    account = Account()
    with serving(lambda *_: reply) as server:
        spec(server)
        summary = rewardspec.score("spec.yaml", "rows.jsonl", "out.jsonl", account=account)
    assert summary.mean["clear"] == 1 and summary.judges["m"].unsaid == 1
    assert account.used["m"].prompt_tokens == account.used["m"].completion_tokens == 0


# What it may ask


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "calls"),
    [("calls=5", 5), ("tokens=600", None), ("cost=0.0006", None), ("minutes=0", 0)],
)
def test_a_budget_ends_the_asking_and_the_rest_is_asked_later(budget, calls, folder):
    """A call has 27 tokens, and could have 60 and a quarter of its bytes; a million of them cost 1."""
    write([f"yes {i}" for i in range(40)], gold=[f"yes {i}" for i in range(40)])
    with serving(lambda *_: with_usage("Score: 1", 20, 7)) as server:
        spec(server, max_tokens=60, concurrency=4)
        ended = score("--budget", budget, "--price", "1,1", "--cache", "kept.sqlite")
        assert ended.exit_code == 3, ended.output
        name = budget.partition("=")[0]
        asked = len(server.asked)
        assert f"the budget of {name} is spent: {40 - asked} requests were not sent" in ended.output
        assert asked == calls if calls is not None else 600 - 100 <= asked * 27 <= 600
        missing = [row["scored/clear"] is None for row in rows()]
        assert missing.count(False) == asked and len(missing) == 40
        assert score("--cache", "kept.sqlite", "--only-failed").exit_code == 0
        assert len(server.asked) == 40 and all(row["scored/clear"] == 1 for row in rows())


@pytest.mark.slow
def test_rows_that_need_a_value_are_skipped_without_one_and_scored_later(folder):
    write([f"yes {i}" for i in range(8)], gold=[f"yes {i}" for i in range(8)])
    with serving(lambda *_: with_usage("Score: 1")) as server:
        spec(server, cache=str(folder))
        text = Path("spec.yaml").read_text().replace("only_when: right >= 1, ", "").replace("    missing: ignore\n", "")
        Path("spec.yaml").write_text(text)
        found = as_json("--budget", "calls=5", status=3)
        assert found["rollouts"] == 5 and found["skipped"] == 3 and len(found["first_skipped"]) == 3
        assert as_json()["rollouts"] == 8 and len(server.asked) == 8


def test_a_run_that_fails_says_what_it_asked(folder):
    write([f"yes {i}" for i in range(8)], gold=[f"yes {i}" for i in range(8)])
    with serving(lambda text, _: failed(401) if text == "yes 5" else with_usage("Score: 1")) as server:
        spec(server, concurrency=1)
        ended = score("--price", "1,1")
    assert ended.exit_code == 2 and "status 401" in ended.output
    said_of_it = "judge m: 6 calls, 0 answers from its cache, 500 tokens read and 35 written, cost 0.000535"
    assert said_of_it in ended.output


def test_a_budget_of_retries_leaves_what_fails_without_an_answer(folder, caplog):
    write([f"yes {i}" for i in range(8)], gold=[f"yes {i}" for i in range(8)])
    with serving(lambda text, before: failed(503) if int(text[-1]) % 2 and before < 2 else said("Score: 1")) as server:
        spec(server, concurrency=1)
        found = as_json("--budget", "retries=3", status=3)
    assert found["judges"]["m"]["calls"] == 8 + 3 and found["judges"]["m"]["retries"] == 3
    assert found["rewards"]["clear"]["missing"] == 3 and found["budget_spent"] == {"retries": 3}
    assert "3 of 8 rollouts have no score: 3 had status 503" in warnings(caplog)[0]


@pytest.mark.parametrize("number", [-1, math.nan])
def test_numbers_that_would_limit_nothing_are_refused(number):
    for make in (lambda x: Limits(tokens=x), lambda x: Budget(cost=x), lambda x: Price(0.1, x)):
        with pytest.raises(ValueError, match="number"):
            make(number)
    with pytest.raises(ValueError, match="requests=0: a limit is a number above 0, or None"):
        Limits(requests=0)


def test_tokens_of_requests_under_way_are_held_back():
    """A request may take 10 + 90 tokens: a budget of 250 lets two be under way, and a third when one took 20."""
    account = Account(budget=Budget(tokens=250))
    request = Request("m", 10, 90)
    assert [account.permit(request, 0).number for _ in range(2)] == [1, 2]
    assert account.permit(request, 0).number == 0 and not account.permit(request, 0).spent
    account.settle(1, "m", (10, 10))
    assert account.permit(request, 1).number == 3
    account.settle(3, "m", None)  # not known: all that it may have taken
    account.settle(2, "m", (10, 10))
    assert account.permit(request, 2).number == 4
    assert account.permit(request, 2 + 3600).spent == "tokens"  # the process of 4 was killed
    assert Account.of_json(account.to_json()) == account


def test_an_account_is_whole_after_a_process_was_killed_while_it_wrote(tmp_path, monkeypatch):
    """With many requests under way it has many pages, of which a killed process may have written some."""
    account = Account(budget=Budget(tokens=1e9))
    file = AccountFile.of(account, tmp_path / "account.json")
    for _ in range(200):
        asyncio.run(file.permit(Request("m", 10, 90)))

    def half(place, data, *_, write=Path.write_bytes):
        if isinstance(place, Path):
            write(place, data[: len(data) // 2])
        else:
            os.write(place, data[: len(data) // 2])
        pytest.exit("here it is killed")

    for where, name in ((Path, "write_bytes"), (os, "pwrite"), (os, "replace")):
        with monkeypatch.context() as dying:
            dying.setattr(where, name, half if name != "replace" else lambda *_: pytest.exit("here it is killed"))
            with suppress(pytest.exit.Exception):
                asyncio.run(file.permit(Request("m", 10, 90)))
        assert file.account().used["m"].calls in (200, 201)


@pytest.mark.slow
def test_processes_share_limits_and_a_budget(tmp_path):
    """Four processes under one account: 20 a second, 30 in all; evenly in time, so a second and a half at least."""
    path = tmp_path / "account.json"
    file = AccountFile.of(Account(Limits(requests=1200), Budget(calls=30), {"m": Price(1, 1)}), path)
    program = f"""
import asyncio, time
from pathlib import Path
from rewardspec.rewards.judge.account import Request, permitted
from rewardspec.scoring.accounts import AccountFile

async def main():
    file = AccountFile(Path({str(path)!r}))
    while True:
        permit = await permitted(file, Request("m", 1, 1))
        if permit.spent:
            return
        print(permit.number, time.monotonic(), flush=True)
        await file.settle(permit.number, "m", (3, 2))

asyncio.run(main())
"""
    started = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    lines = [line.split() for one in started for line in one.communicate()[0].splitlines()]
    assert sorted(int(number) for number, _ in lines) == list(range(1, 31))
    times = sorted(float(at) for _, at in lines)
    assert times[-1] - times[0] > 29 / 20 - 0.2
    used = file.account().used["m"]
    assert (used.calls, used.prompt_tokens, used.completion_tokens) == (30, 90, 60)


@pytest.mark.slow
def test_several_processes_of_a_run_have_one_account(folder):
    write([f"yes {i}" for i in range(600)], gold=[f"yes {i}" for i in range(600)])
    with serving(lambda *_: with_usage("Score: 1")) as server:
        spec(server)
        found = as_json("--processes", "2", "--budget", "calls=300", "--requests-per-minute", "1e6", status=3)
    assert len(server.asked) == 300
    assert found["judges"]["m"] == {
        "calls": 300, "retries": 0, "recalled": 0, "prompt_tokens": 30000, "completion_tokens": 2100, "unsaid": 0,
        "cost": None,
    }  # fmt: skip
    assert found["budget_spent"] == {"calls": 300} and found["rewards"]["clear"]["missing"] == 300


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--budget", "cals=3"], "a budget has no `cals`; did you mean `calls`?"),
        (["--budget", "calls=-1,cost=x"], "--budget cost=x: write a number that is not negative"),
        (["--budget", "cost=1"], "--budget cost needs the price of m: --price m=IN,OUT"),
        (["--price", "1"], "--price 1: write the price of a million tokens, read and written: 0.15,0.60"),
        (["--price", "mm=1,2"], "--price mm: no judge is this model; did you mean `m`?"),
        ([], "-o is missing: name the file to write, or add --dry-run"),
    ],
)
def test_options_that_cannot_be_held_are_refused(options, says, folder):
    with serving(lambda *_: said("Score: 1")) as server:
        spec(server)
        write(["yes 1"])
        ended = score(*options, output="out.jsonl" if options else None)
        assert ended.exit_code == 2 and says in " ".join(ended.output.split())
        ended = score("--budget", "calls=1", spec="gdpo/math")
        assert ended.exit_code == 2 and "--budget: the spec has no judge" in ended.output
        assert server.asked == []


# Criteria in batches

CRITERIA = [f"c{i}" for i in range(7)]


def judged(server, **options):
    given = {"template": "{completion}: {criteria}", "scores": (0, 1), "calls": "all", "per_call": 3, **options}
    return rubric(["p"], ["x"], None, [CRITERIA], model="m", url=server.url, **{"cache": "none", **given})


def numbers(text):
    return [int(number) for number in re.findall(r'"c(\d+)"', text)]


def odd(text):
    return [number % 2 for number in numbers(text)]


def test_criteria_are_asked_in_batches_and_answers_put_back(folder):
    with serving(lambda text, _: said(f"So: \n{odd(text)}")) as server:
        assert judged(server) == [[0, 1, 0, 1, 0, 1, 0]]
        assert sorted(numbers(text) for text in server.texts) == [[0, 1, 2], [3, 4, 5], [6]]
        assert judged(server, per_call=None) == judged(server, per_call=64) == [[0, 1, 0, 1, 0, 1, 0]]


@pytest.mark.parametrize(
    ("bad", "again"),
    [
        ("[1, null, 1]", [[4]]),  # the second is missing: it alone is asked again
        ("[1, 7, true]", [[4, 5]]),
        ("[1, 1]", [[3, 4], [5]]),  # places are not known: in halves
        ("I cannot.", [[3, 4], [5]]),
        ("[9, 9, 9]", [[3, 4], [5]]),
    ],
)
def test_only_criteria_without_an_answer_are_asked_again(bad, again, folder, caplog):
    def answer(text, _):
        return said(bad) if numbers(text) == [3, 4, 5] else said(json.dumps(odd(text)))

    with serving(answer) as server:
        found = judged(server, cache=str(folder))
        assert found == [[0, 1, 0, 1, 0, 1, 0]]
        asked = sorted(numbers(text) for text in server.texts)
        assert asked == sorted([[0, 1, 2], [3, 4, 5], [6], *again])
        assert not warnings(caplog)
        assert judged(server, cache=str(folder)) == found
        more = [numbers(text) for text in server.texts[len(asked) :]]
        assert more == ([] if "1, null" in bad or "7" in bad else [[3, 4, 5]])


def test_criteria_that_stay_without_an_answer_are_missing_and_asked_twice_at_most(folder, caplog):
    with serving(lambda text, _: said("no" if 4 in numbers(text) else json.dumps(odd(text)))) as server:
        assert judged(server) == [[0, 1, 0, None, None, 1, 0]]
        assert len(server.asked) == 3 + 2
    assert "2 of 7 criteria have no score: 2 answers without a score (no)" in warnings(caplog)[0]
    with serving(lambda text, _: failed(503) if 4 in numbers(text) else said(json.dumps(odd(text)))) as server:
        assert judged(server, retries=0) == [[0, 1, 0, None, None, None, 0]]
        assert len(server.asked) == 3  # an endpoint that fails is asked by `retries` alone


def test_batches_are_for_calls_about_all_criteria():
    with pytest.raises(ValueError, match="`per_call` is the most criteria in one call: add `calls: all`"):
        rubric(["p"], ["x"], template="{completion}", scores=(0, 1), model="m", per_call=2, url="http://x")


LISTS = """rewardspec: 1
lists: {{criterion: {{}}}}
signals:
  met:
    use: judge.rubric
    level: criterion
    with: {{template: "{{completion}}: {{criteria}}", scores: [0, 1], model: m, url: "{url}", criteria: rubric,
           calls: {calls}, per_call: 20, cache: none, max_tokens: 100}}
    missing: ignore
components:
  share: mean(met, over=rollout)
advantage: grpo
"""


def test_a_long_rubric_of_a_file_is_asked_in_batches(folder):
    """60 criteria in three calls; a row with one criterion more in four; a row without criteria in none."""
    rubrics = [[f"c{i}" for i in range(count)] for count in (60, 61, 0)]
    rows = [{"group": 0, "prompt": "p", "completion": f"x{i}", "rubric": one} for i, one in enumerate(rubrics)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serving(lambda text, _: with_usage(json.dumps(odd(text)))) as server:
        Path("spec.yaml").write_text(LISTS.format(url=server.url, calls="all"))
        one = as_json("--dry-run", output=None)["judges"]["met"]
        assert (one["rows"], one["requests"], one["completion_tokens"]) == (3, 7, 700)
        summary = rewardspec.score("spec.yaml", "rows.jsonl", "out.jsonl")
        assert len(server.asked) == summary.judges["m"].calls == 7
        assert max(len(numbers(text)) for text in server.texts) == 20
        for row, rubric_of in zip(RolloutFile(Path("out.jsonl")).rows(), rubrics, strict=False):
            assert row["scored/met"] == [int(text[1:]) % 2 for text in rubric_of]
    with pytest.raises(rewardspec.SpecError, match="`per_call` is the most criteria in one call: add `calls: all`"):
        rewardspec.loads(LISTS.format(url="http://localhost/v1", calls="each").replace("criteria}", "criterion}"))
