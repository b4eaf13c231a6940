"""`use:` from spec to trainer: what a spec measures itself, in the signatures of the trainers and in files."""

import json
import math
import subprocess
import sys
import textwrap

import pytest
import torch
from typer.testing import CliRunner

import rewardspec
from rewardspec import rewards
from rewardspec.cli import app
from rewardspec.rewards import ScoringError

GOLD = '<think>t</think>\n<tool_call>\n{"name": "f", "parameters": {"x": 1}}\n</tool_call>'
WRONG = GOLD.replace("1", "2")
SPEC = """
rewardspec: 1
name: tools
components:
  format: {use: toolrl.format}
  correctness: {use: toolrl.correctness}
  thought:
    use: toolrl.think_length
    with: {target: 4, only_when: correctness >= 3}
    missing: ignore
advantage: decoupled
"""


@pytest.fixture
def spec():
    return rewardspec.loads(SPEC)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's, whose import leaves a trace."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users_rewards", raising=False)
    (tmp_path / "users_rewards.py").write_text(
        textwrap.dedent(
            """
            from pathlib import Path

            Path(__file__).with_name("imported").touch()

            def right(completion, answer):
                return completion == answer

            def long(completions, **columns):
                return [len(c) + len(columns["prompts"][i]) for i, c in enumerate(completions)]

            def short(completions):
                return [1.0]

            def unsure(completion, note=None):
                return None if note is None else note

            def never(completion):
                return None

            def all_by_name(completion, **columns):
                return float("prompt" in columns)

            def all_by_batch(completions, **columns):
                return [float("prompts" in columns)] * len(completions)

            def word(completion):
                return "good"
            """
        )
    )
    return tmp_path


def test_domains_come_from_the_functions(spec):
    domains = {name: str(column.domain) for name, column in spec.program.columns.items()}
    assert domains == {"format": "{0, 1}", "correctness": "[-3, 3]", "thought": "[0, 1]"}
    assert rewardspec.loads(SPEC.replace("correctness}", "correctness, with: {lo: -1, hi: 1}}").replace(">= 3", ">= 1"))


def test_trl_functions_bear_the_names_of_the_columns_and_share_one_pass(spec, monkeypatch):
    calls = []
    original = rewards.Scorer.measure
    monkeypatch.setattr(rewards.Scorer, "measure", lambda self, *a: calls.append(1) or original(self, *a))
    functions = rewards.for_trl(spec)
    batch = {"prompts": ["p"] * 3, "completions": [GOLD, WRONG, "x"], "answer": [GOLD] * 3, "trainer_state": object()}
    found = {function.__name__: function(**batch) for function in functions}
    assert found == {
        "format": [1, 1, 0],
        "correctness": [3, pytest.approx(6 * 2 / 3 - 3), -3],  # name, key, no value: 2 of 3
        "thought": [0.25, None, None],  # asked only where the calls are right
    }
    assert len(calls) == 1
    functions[0](**{**batch, "completions": list(batch["completions"])})
    assert len(calls) == 2


def test_trl_functions_measure_again_what_is_in_the_same_list(spec):
    _, correctness, _ = rewards.for_trl(spec)
    completions = [GOLD]
    assert correctness(prompts=["p"], completions=completions, answer=[GOLD]) == [3]
    assert correctness(prompts=["p"], completions=completions, answer=[WRONG]) == [1]
    completions[0] = "x"
    assert correctness(prompts=["p"], completions=completions, answer=[GOLD]) == [-3]


@pytest.mark.parametrize("make", [rewards.for_trl, rewards.for_verl, rewards.for_openrlhf])
def test_a_spec_without_functions_is_said_to_have_none(make):
    with pytest.raises(ScoringError, match="names no reward function"):
        make(rewardspec.loads("rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\n"))
    make(rewardspec.loads("rewardspec: 1\ncomponents: {a: {use: gdpo.length(limit=4)}}\nadvantage: grpo\n"))


@pytest.mark.parametrize("end", ["", "<|im_end|>", "</s>", "<|im_end|><|endoftext|>", "<end_of_turn>"])
def test_openrlhf_queries_end_in_tokens(spec, end):
    prompt = "<|im_start|>user\ncall f<|im_end|>\n<|im_start|>assistant\n"
    reward_func = rewards.for_openrlhf(spec)
    for query in (prompt + GOLD + end, "<s>" + prompt + GOLD + end, prompt[20:] + GOLD + end):  # whole, begun, cut off
        assert reward_func([query], [prompt], [GOLD])["extra_logs"]["format"].tolist() == [1]
    assert reward_func([prompt + GOLD + "\n" + end], [prompt], [GOLD])["extra_logs"]["format"].tolist() == [0]
    own = rewards.for_openrlhf(spec, ends=["[END]", ""])
    assert own([prompt + GOLD + "[END][END]"], [prompt], [GOLD])["extra_logs"]["format"].tolist() == [1]
    with pytest.raises(ScoringError, match="does not begin with its prompt"):
        reward_func(["other" + GOLD], [prompt], [GOLD])


def test_ends_of_a_long_text_take_linear_time(spec):
    reward_func = rewards.for_openrlhf(spec)
    for text in ("<|a|>" * 200_000 + "x", "<" * 1_000_000, "<|a|>" * 200_000):
        reward_func(["p" + text], ["p"], [GOLD])


def test_verl_takes_the_ground_truth_and_no_prompt_that_is_not_there(spec):
    compute_score = rewards.for_verl(spec)
    assert compute_score("d", GOLD, GOLD, {"answer": "a whole solution", "data_source": "?"})["correctness"] == 3
    judged = """rewardspec: 1
components:
  a: {use: judge.rubric, with: {template: papo, model: m, prompt: question}}
  b: {use: judge.rubric, with: {template: papo, model: m}}
advantage: grpo
"""
    found = rewardspec.loads(judged).uses
    assert found["a"].inputs["prompt"] == "question"
    with pytest.raises(ScoringError, match="there is no column `prompt`"):
        rewards.for_verl(rewardspec.loads(judged.replace("prompt: question", "answer: answer")))("d", "x", "y", {})


def test_trl_functions_read_chats(spec):
    (first, *_) = rewards.for_trl(spec)
    chat = [{"role": "assistant", "content": GOLD}]
    assert first(prompts=[[{"role": "user", "content": "p"}]], completions=[chat], answer=[GOLD]) == [1]


def test_verl_and_openrlhf_get_what_they_ask_for(spec):
    compute_score = rewards.for_verl(spec)
    assert compute_score("d", GOLD, GOLD, {"index": 0}) == {
        "score": 4.25,
        "format": 1,
        "correctness": 3,
        "thought": 0.25,
    }
    wrong = compute_score(data_source="d", solution_str="x", ground_truth=GOLD)
    assert wrong["score"] == -3 and wrong["thought"] is None
    reward_func = rewards.for_openrlhf(spec)
    found = reward_func(["ask" + GOLD, "askx"], ["ask", "ask"], [GOLD, GOLD])
    assert found["rewards"].tolist() == found["scores"].tolist() == [4.25, -3]
    assert {name: values.dtype for name, values in found["extra_logs"].items()} == dict.fromkeys(
        spec.uses, torch.float32
    )
    assert found["extra_logs"]["correctness"].tolist() == [3, -3]


def test_what_was_measured_goes_into_the_compiled_function(spec):
    found = rewards.Scorer(spec).measure([{"completion": c, "answer": GOLD} for c in (GOLD, WRONG, "x", "y")]).columns
    out = rewardspec.compile(spec)(found, groups=4)
    assert out.advantages.argmax() == 0 and out.advantages[2] == out.advantages[3]


def test_a_ground_truth_or_column_that_is_wrong_names_the_rows(spec):
    function = rewards.for_trl(spec)[0]
    with pytest.raises(ScoringError, match=r"rollout 1: `format`: ground truth: .*missing"):
        function(prompts=["p"] * 2, completions=["x"] * 2, answer=[GOLD, "five"])
    with pytest.raises(ScoringError, match=r"there is no column `answer`; did you mean `answr`\?"):
        function(prompts=["p"], completions=["x"], answr=[GOLD])
    renamed = rewardspec.loads(SPEC.replace("toolrl.format}", "toolrl.format, with: {answer: solution}}"))
    assert rewards.for_trl(renamed)[0](prompts=["p"], completions=[GOLD], answer=[GOLD], solution=[GOLD]) == [1]


def test_a_condition_on_a_column_of_the_data_set_needs_that_column():
    text = SPEC.replace("components:", "signals: {level: {values: [easy, hard]}}\ncomponents:")
    spec = rewardspec.loads(text.replace("correctness >= 3", "level == hard"))
    assert "level" not in spec.columns  # the advantage does not read it
    rows = [{"completion": GOLD, "answer": GOLD, "level": level} for level in ("easy", "hard")]
    assert rewards.Scorer(spec).measure(rows).columns["thought"] == [None, 0.25]
    with pytest.raises(ScoringError, match="`only_when` of `thought`: there is no column `level`"):
        rewards.Scorer(spec).measure([{"completion": GOLD, "answer": GOLD}])


def test_a_condition_of_the_only_component_does_not_read_that_component():
    spec = rewardspec.loads("""rewardspec: 1
signals: {correct: {values: [0, 1]}}
components:
  thought: {use: think.format, missing: ignore, with: {only_when: correct >= 1}}
advantage: grpo
""")
    assert spec.compared("thought") == ("correct",)
    rows = [{"completion": "x", "correct": correct} for correct in (1, 0)]
    assert rewards.Scorer(spec).measure(rows).columns["thought"] == [0, None]


OWN = """
rewardspec: 1
components:
  right: {python: users_rewards:right, values: [0, 1]}
  long: {python: users_rewards:long, range: [0, .inf], weight: 0.1}
  unsure: {python: users_rewards:unsure, range: [0, 1], missing: ignore}
advantage: gdpo
guarantees: {bounded: advantage < 1000}
"""


@pytest.mark.slow
def test_a_function_of_the_users_is_imported_only_where_it_runs(module):
    spec = rewardspec.loads(OWN)
    fn = rewardspec.compile(spec)
    fn({"right": [1, 0], "long": [3, 4], "unsure": [None, 1]}, groups=2)
    (module / "spec.yaml").write_text(OWN)
    for command in ("check", "compile", "explain", "simulate", "verify"):
        assert CliRunner().invoke(app, [command, str(module / "spec.yaml")]).exit_code == 0
    assert not (module / "imported").exists()
    functions = rewards.for_trl(spec, allow_python=True)
    assert (module / "imported").exists()
    batch = {"prompts": ["p", "q"], "completions": ["a", "bc"], "answer": ["a", "a"], "note": [None, 0.5]}
    assert [function(**batch) for function in functions] == [[1, 0], [2, 3], [None, 0.5]]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no_such_module:f", "No module named"),
        ("users_rewards:nothing", "has no attribute"),
        ("users_rewards:short", "returned 1 values for 2"),
    ],
)
def test_a_function_of_the_users_that_is_wrong_is_said_to_be(module, path, said):
    spec = rewardspec.loads(OWN.replace("users_rewards:right", path))
    with pytest.raises(ScoringError, match=said):
        rewards.for_trl(spec, allow_python=True)[0](prompts=["p"] * 2, completions=["a", "b"], answer=["a", "b"])


def test_a_spec_without_functions_has_nothing_to_give_to_a_trainer():
    spec = rewardspec.loads("rewardspec: 1\ncomponents:\n  a: {values: [0, 1]}\nadvantage: grpo\n")
    with pytest.raises(ScoringError, match=r"such as `use: toolrl\.format`"):
        rewards.for_verl(spec)


def test_the_fingerprint_tells_functions_and_options_apart():
    prints = [
        rewardspec.loads(SPEC.replace("target: 4", option)).fingerprint
        for option in ("target: 4", "target: 8", "target: 4.0")
    ]
    assert prints[0] != prints[1] and prints[0] == prints[2]


@pytest.mark.slow
def test_diff_shows_functions_that_differ(tmp_path):
    (tmp_path / "a.yaml").write_text(SPEC)
    (tmp_path / "b.yaml").write_text(
        SPEC.replace("{use: toolrl.correctness}", "{use: toolrl.correctness(pairing=greedy)}")
    )
    result = CliRunner().invoke(app, ["diff", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")])
    assert result.exit_code == 1 and "toolrl.correctness(pairing=greedy)" in result.output


# rewardspec score


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "spec.yaml").write_text(SPEC)
    rows = [
        {"prompt_id": i // 4, "step": i // 8, "completion": c, "answer": GOLD}
        for i, c in enumerate([GOLD, WRONG, "x", GOLD] * 150)
    ]
    lines = [json.dumps(row) for row in rows]
    lines[5] = "{not json"
    lines[9] = json.dumps({**rows[9], "answer": "no tags"})
    lines[13] = json.dumps({"prompt_id": 3, "step": 1, "answer": GOLD})
    (tmp_path / "rollouts.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def score(folder, *options, output="scored.parquet"):
    arguments = ["score", str(folder / "spec.yaml"), str(folder / "rollouts.jsonl"), "-o", str(folder / output)]
    return CliRunner().invoke(app, [*arguments, *options])


def read(path):
    from rewardspec.logs.parts import RolloutFile

    return RolloutFile(path).rows()


def short(row):
    """A row with its scored columns by their short names."""
    return {name.removeprefix("scored/"): value for name, value in row.items()}


@pytest.mark.slow
@pytest.mark.parametrize("output", ["scored.parquet", "scored.jsonl"])
def test_score_adds_rewards_and_advantages_and_keeps_bad_rows_aside(folder, output):
    result = score(folder, output=output)
    assert result.exit_code == 0, result.output
    rows = read(folder / output)
    assert len(rows) == 597
    aside = [json.loads(line) for line in (folder / f"{output}.bad.jsonl").read_text().splitlines()]
    assert [row["row"] for row in aside] == [6, 10, 14]
    assert "not JSON" in aside[0]["reason"] and "ground truth" in aside[1]["reason"]
    assert aside[2]["reason"] == "there is no `completion`"
    group = [short(row) for row in rows if row["prompt_id"] == 5]
    found = {name: [row[name] for row in group] for name in ("format", "correctness", "thought")}
    assert found == {"format": [1, 1, 0, 1], "correctness": [3, 1, -3, 3], "thought": [0.25, None, None, 0.25]}
    expected = rewardspec.compile(folder / "spec.yaml")(found, groups=4).advantages.tolist()
    assert [row["advantage"] for row in group] == pytest.approx(expected)
    assert not list(folder.glob("*.partial")) and not list(folder.glob("*.writing"))


@pytest.mark.slow
def test_score_takes_up_what_was_interrupted(folder, monkeypatch):
    whole = score(folder)
    expected = read(folder / "scored.parquet")
    original, calls = rewards.Scorer.measure, []

    def stops(self, rows, *rest):
        calls.append(len(rows))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(self, rows, *rest)

    (folder / "scored.parquet").unlink()
    monkeypatch.setattr(rewards.Scorer, "measure", stops)
    assert score(folder).exit_code != 0 and not (folder / "scored.parquet").exists()
    result = score(folder)
    assert "resumed: 254 rows" in result.output  # of 256, two cannot be measured
    assert read(folder / "scored.parquet") == expected and whole.exit_code == 0


@pytest.mark.slow
def test_rewards_are_kept_where_advantages_cannot_be_computed(folder, module):
    own = SPEC.replace("advantage:", "  never: {python: users_rewards:never, range: [0, 1]}\nadvantage:")
    (folder / "spec.yaml").write_text(own)
    result = score(folder, "--allow-python", "users_rewards")
    assert (
        result.exit_code == 2
        and "the advantages cannot be computed" in result.output
        and "the rewards without advantages" in result.output
    )
    assert read(folder / "scored.parquet")[0]["scored/correctness"] == 3


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("a: {values: [0, 1]}", "has no column `a`"),
        ("a: {use: toolrl.format}\n  b: {values: [0, 1]}", "has no column `b`"),
        ("a: {use: toolrl.format}\n  b: gdpo.length", None),
    ],
)
def test_score_says_what_it_lacks(folder, spec, said):
    (folder / "spec.yaml").write_text(f"rewardspec: 1\ncomponents:\n  {spec}\nadvantage: gdpo\n")
    result = score(folder)
    assert result.exit_code in (1, 2) and (said is None or said in result.output)
    assert "Traceback" not in result.output


def test_score_without_groups_or_file(folder):
    (folder / "rollouts.jsonl").write_text(json.dumps({"completion": "x", "answer": GOLD}) + "\n")
    assert "identifies groups" in score(folder).output
    assert score(folder, "--group-by", "answer").exit_code == 0
    (folder / "rollouts.jsonl").write_text("")
    assert "has no rollouts" in score(folder).output
    (folder / "rollouts.jsonl").unlink()
    assert "No such file" in score(folder).output


@pytest.mark.slow
def test_score_keeps_nested_values_as_they_are(folder):
    calls = [[{"name": "f", "parameters": parameters}] for parameters in ({"a": 1}, {}, {"b": [{}]})]
    rows = [
        {
            "prompt_id": 0,
            "completion": f"<think>t</think>\n<tool_call>\n{json.dumps(gold[0])}\n</tool_call>",
            "answer": gold,
            "meta": {},
            "even": [{"k": 1}],
            "\ud800": 1,
        }
        for gold in calls
    ]
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert score(folder).exit_code == 0
    first = read(folder / "scored.parquet")
    assert [(row["answer"], row["meta"], row["even"]) for row in first] == [(gold, {}, [{"k": 1}]) for gold in calls]
    assert [row["scored/correctness"] for row in first] == [3, 3, 3]
    again = folder / "again.parquet"
    arguments = ["score", str(folder / "spec.yaml"), str(folder / "scored.parquet"), "-o", str(again)]
    assert "has `scored/format`, `scored/correctness`" in CliRunner().invoke(app, arguments).output
    assert CliRunner().invoke(app, [*arguments, "--prefix", "again/"]).exit_code == 0
    assert [row["again/correctness"] for row in read(again)] == [3, 3, 3]


def test_score_sets_aside_rows_that_the_spec_cannot_take(folder):
    (folder / "spec.yaml").write_text(
        "rewardspec: 1\ncomponents: {f: {use: toolrl.format}, l: {use: gdpo.length}}\nadvantage: gdpo\n"
    )
    rows = [{"prompt_id": i // 4, "completion": GOLD, "answer": GOLD, "tokens": 100 * i} for i in range(40)]
    rows[7]["tokens"], rows[9]["tokens"] = None, "12"
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = score(folder)
    assert result.exit_code == 0, result.output
    assert len(read(folder / "scored.parquet")) == 38 and all(
        math.isfinite(row["scored/advantage"]) for row in read(folder / "scored.parquet")
    )
    aside = [json.loads(line) for line in (folder / "scored.parquet.bad.jsonl").read_text().splitlines()]
    assert [row["row"] for row in aside] == [8, 10]
    assert aside[0]["reason"] == "column `tokens` is missing: it should be from 0 to inf"
    assert aside[1]["reason"] == "`tokens` is '12': it must be a number"


@pytest.mark.slow
def test_score_keeps_lines_that_it_cannot_read(folder):
    deep = '{"prompt_id": 1, "completion": "x", "answer": "y", "deep": ' + "[" * 500 + "]" * 500 + "}"
    (folder / "rollouts.jsonl").write_bytes(
        b"{oops\n[1]\n\xff\n" + deep.encode() + b"\n" + (folder / "rollouts.jsonl").read_bytes()
    )
    assert score(folder).exit_code == 0
    aside = [json.loads(line) for line in (folder / "scored.parquet.bad.jsonl").read_text().splitlines()][:4]
    assert [row["text"] for row in aside] == ["{oops", "[1]", "\udcff", deep]


def test_score_of_a_spec_that_measures_nothing_adds_advantages(folder):
    (folder / "spec.yaml").write_text("rewardspec: 1\ncomponents: {l: {use: gdpo.length(limit=5)}}\nadvantage: grpo\n")
    lines = [json.dumps({"prompt_id": 0, "tokens": n}) for n in (4, 6)]
    (folder / "rollouts.jsonl").write_text("\n".join(lines))
    assert score(folder).exit_code == 0
    assert [row["scored/advantage"] for row in read(folder / "scored.parquet")] == pytest.approx(
        [0.7071, -0.7071], abs=1e-4
    )


@pytest.mark.slow
def test_score_finds_functions_where_it_was_started(folder, module):
    own = "rewardspec: 1\ncomponents: {a: {python: users_rewards:all_by_name, range: [0, 1]}}\nadvantage: grpo\n"
    (folder / "spec.yaml").write_text(own)
    command = [sys.executable, "-m", "rewardspec.cli", "score", "spec.yaml", "rollouts.jsonl", "-o", "o.jsonl"]
    command.append("--trust")
    code = "import sys; sys.path[:] = [p for p in sys.path if p]; from rewardspec.cli import main; main()"
    found = subprocess.run([command[0], "-c", code, *command[3:]], cwd=folder, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("name", ["all_by_name", "all_by_batch"])
def test_functions_that_take_everything_need_no_prompt(module, name):
    own = f"rewardspec: 1\ncomponents: {{a: {{python: users_rewards:{name}, range: [0, 1]}}}}\nadvantage: grpo\n"
    scorer = rewards.Scorer(rewardspec.loads(own), allow_python=True)
    assert scorer.measure([{"completion": "x"}] * 2).columns["a"] == [0, 0]
    assert scorer.measure([{"completion": "x", "prompt": "p"}] * 2).columns["a"] == [1, 1]


def test_a_value_that_is_no_number_is_said_to_be_one(module):
    own = "rewardspec: 1\ncomponents: {a: {python: users_rewards:word, range: [0, 1]}}\nadvantage: grpo\n"
    with pytest.raises(ScoringError, match="'good' is not a number"):
        rewards.Scorer(rewardspec.loads(own), allow_python="users_rewards").measure([{"completion": "x"}])


def test_a_function_that_changes_what_it_reads_changes_nothing_for_others():
    def greedy(completion, golds):
        return float(len(golds.pop()) + len(golds.clear() or golds))

    def modest(completions, golds):
        return [float(len(gold)) for gold in golds]

    text = """
rewardspec: 1
name: two
components:
  greedy: {python: "m:greedy", range: [0, 9]}
  modest: {python: "m:modest", range: [0, 9]}
advantage: grpo
"""
    row = {"completion": "c", "golds": ["a", ["b", {"c": []}]]}
    scorer = rewards.Scorer(rewardspec.loads(text), functions={"greedy": greedy, "modest": modest})
    assert scorer.required([row, row]) == [{"greedy": 2.0, "modest": 2.0}] * 2
    assert row == {"completion": "c", "golds": ["a", ["b", {"c": []}]]}
