"""A judge that a spec names: asked about right answers only, its silence missing, its settings checked."""

import json

import pytest
from judge_server import failed, said, serving, surroundings
from typer.testing import CliRunner

import rewardspec
from rewardspec import rewards
from rewardspec.cli import app
from rewardspec.resources import resource
from rewardspec.rewards import ScoringError

pytestmark = pytest.mark.usefixtures("surroundings")
__all__ = ["surroundings"]

ROWS = [
    {"prompt": "1 + 1?", "completion": text, "answer": "2"}
    for text in ("well: \\boxed{2}", "so so: \\boxed{2}", "\\boxed{3}", "guessed: \\boxed{2}")
]
GRADES = {"well": "1", "so so": "0.5", "guessed": "0"}


def grades(text, _):
    return said(next(f"Because.\nScore: {grade}" for word, grade in GRADES.items() if f"{word}:" in text))


def papo(url, **options):
    text = resource("specs/papo/papo.yaml").read_text(encoding="utf-8")
    more = "".join(f", {name}: {value}" for name, value in {"url": url, "cache": "none", **options}.items())
    return text.replace("model: judge", f"model: judge{more}")


def judged(options):
    """A spec with nothing but a judge."""
    return f"rewardspec: 1\ncomponents: {{j: {{use: judge.rubric, with: {{{options}}}}}}}\nadvantage: grpo\n"


@pytest.mark.slow
def test_papo_asks_about_right_answers_only_and_gives_its_advantages():
    with serving(grades) as server:
        spec = rewardspec.loads(papo(server.url))
        found = rewards.Scorer(spec).measure(ROWS).columns
    assert found == {"outcome": [1, 1, 0, 1], "process": [1, 0.5, None, 0]}
    assert len(server.asked) == 3 and all("1 + 1?" in text for text in server.texts)
    advantages = rewardspec.compile(spec)(found, groups=4).advantages.tolist()
    outcome = [0.5, 0.5, -1.5, 0.5]  # (x - 3/4) / (1/2), Eq. 3
    assert advantages == pytest.approx([outcome[0] + 1, outcome[1], outcome[2], outcome[3] - 1], abs=1e-5)  # Eq. 4


@pytest.mark.slow
def test_a_judge_that_says_nothing_useful_is_missing():
    with serving(lambda *_: said("I would rather not.")) as server:
        spec = rewardspec.loads(papo(server.url).replace("otherwise: ignore", "otherwise: ignore\n    missing: ignore"))
        functions = rewards.for_trl(spec)
        columns = {name: [row[name] for row in ROWS] for name in ("answer",)}
        batch = {"prompts": [r["prompt"] for r in ROWS], "completions": [r["completion"] for r in ROWS], **columns}
        assert functions[1](**batch) == [None] * 4


@pytest.mark.slow
def test_a_refused_key_is_one_message(tmp_path):
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps({**row, "group": 0}) + "\n" for row in ROWS))
    with serving(lambda *_: failed(401, "bad key")) as server:
        (tmp_path / "spec.yaml").write_text(papo(server.url))
        with pytest.raises(ScoringError, match=r"`process`: .*401"):
            rewards.Scorer(rewardspec.load(tmp_path / "spec.yaml")).measure(ROWS)
        arguments = ["score", tmp_path / "spec.yaml", tmp_path / "rollouts.jsonl", "-o", tmp_path / "out.jsonl"]
        result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 2 and "401" in result.output and "Traceback" not in result.output


@pytest.mark.slow
def test_an_answer_is_needed_only_by_a_rubric_that_reads_it():
    with serving(lambda *_: said("Score: 1")) as server:
        scorer = rewards.Scorer(
            rewardspec.loads(judged(f"template: prs_match, model: m, url: '{server.url}', cache: none"))
        )
        assert scorer.measure(ROWS[:1]).columns == {"j": [1]}
        found = scorer.measure([{"prompt": "p", "completion": "c"}])
        assert "the rubric reads `answer`" in found.bad[0]
        other = rewards.Scorer(rewardspec.loads(judged(f"template: papo, model: m, url: '{server.url}', cache: none")))
        assert other.measure([{"prompt": "p", "completion": "c"}]).columns == {"j": [1]}


@pytest.mark.parametrize(
    ("options", "said_of_it"),
    [
        ("template: papoo, model: m", "no rubric is named `papoo`"),
        ("template: papo", "needs `model`"),
        ("template: '{completion}', model: m", "your own rubric needs `scores`"),
        ("template: '{completion}', model: m, scores: [0, x]", "`scores`"),
        ("template: papo, model: m, url: 'ftp://x'", "`url` must be an address"),
        ("template: papo, model: m, extra: {messages: x}", "cannot set messages"),
        ("template: papo, model: m, temperature: -1", "`temperature`"),
    ],
)
def test_options_are_checked_before_anything_is_asked(options, said_of_it):
    with pytest.raises(rewardspec.SpecError, match=said_of_it):
        rewardspec.loads(judged(options))


def test_options_of_every_kind_reach_the_judge():
    options = "template: 'rate {completion}', scores: [0, 0.5, 1], model: m, cache: none, temperature: null"
    options += ", extra: {seed: 3, n_probs: 0.5, reasoning: low}"
    with serving(lambda *_: said("Score: 0.5")) as server:
        scorer = rewards.Scorer(rewardspec.loads(judged(f"{options}, url: '{server.url}'")))
        assert scorer.measure([{"prompt": "", "completion": "x"}]).columns == {"j": [0.5]}
    (body,) = server.asked
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "rate x"}],
        "max_tokens": 2048,
        "seed": 3,
        "n_probs": 0.5,
        "reasoning": "low",
    }
