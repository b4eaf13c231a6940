"""Reward functions on text: hand-worked examples of every formula, and text as models really write it."""

import itertools
import json
import time
from dataclasses import replace
from fractions import Fraction
from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ

import rewardspec
from rewardspec.rewards import BadReference, Scorer, all_rewards, dapo, gdpo, math, prs, qa, rc_grpo, think, toolrl
from rewardspec.scoring.scorer import as_text


def written(calls, thought="t", response=None):
    """An output as ToolRL's models are asked to write it."""
    lines = "\n".join(json.dumps({"name": name, "parameters": parameters}) for name, parameters in calls)
    parts = [f"<think>{thought}</think>"]
    parts += [f"<tool_call>\n{lines}\n</tool_call>"] if calls else []
    parts += [f"<response>{response}</response>"] if response is not None else []
    return "\n".join(parts)


A, B = ("a", {"x": 1, "y": 2}), ("b", {"z": "three"})
GOLD = written([A, B])


# ToolRL, by hand: S_max = 1 + 2 calls + 3 parameters = 6, reward = R / 6 of the way from -3 to 3

CORRECTNESS = {
    "exact": ([A, B], 6),
    "other order": ([B, A], 6),
    "one call missing": ([A], 1 / 2 + 1 + 2),
    "one call too many": ([A, B, B], 2 / 3 + 2 + 3),
    "a wrong value": ([("a", {"x": 1, "y": 3}), B], 1 + 2 + 2),
    "a wrong parameter name": ([("a", {"x": 1, "w": 2}), B], 1 + 1 / 3 + 1 + 2),
    "a parameter too many": ([("a", {"x": 1, "y": 2, "w": 0}), B], 1 + 2 / 3 + 1 + 3),
    "a wrong name": ([("c", {"x": 1, "y": 2}), B], 1 / 3 + 1 + 1),
    "nothing right": ([("c", {})], 0),
    "numbers as texts": ([("a", {"x": "1", "y": 2}), B], 1 + 2 + 2),
    "true is not 1": ([("a", {"x": True, "y": 2}), B], 1 + 2 + 2),
    "1.0 is 1": ([("a", {"x": 1.0, "y": 2}), B], 6),
}


@pytest.mark.parametrize(("calls", "score"), CORRECTNESS.values(), ids=CORRECTNESS)
def test_correctness_by_hand(calls, score):
    assert toolrl.correctness(written(calls), GOLD) == pytest.approx(6 * score / 6 - 3)
    assert toolrl.correctness(written(calls), GOLD, lo=0, hi=1) == pytest.approx(score / 6)


@pytest.mark.parametrize(
    ("granularity", "calls", "share"),
    [
        ("fine", [("a", {"x": 1, "y": 3}), B], (1 + 2 + 2) / 6),  # names and keys right, one value not
        ("fine", [("a", {"x": 1}), B], (1 + 1 + 1 + 1) / 6),  # one set of keys wrong
        ("fine", [A], (0 + 1 + 2) / 6),  # the set of names wrong
        ("intermediate", [("a", {"x": 1, "y": 3}), B], (1 + 1) / 3),
        ("intermediate", [A], (1 / 2 + 1) / 3),
        ("coarse", [("a", {"x": 1, "y": 3}), B], 0),
        ("coarse", [B, A], 1),
    ],
)
def test_coarser_granularity_by_hand(granularity, calls, share):
    assert toolrl.correctness(written(calls), GOLD, granularity=granularity) == pytest.approx(6 * share - 3)


def test_pairing_is_the_best_there_is_where_the_authors_take_the_first():
    gold = written([("f", {"x": 1, "y": 1}), ("f", {"x": 1, "y": 2})])
    made = written([("f", {"x": 1, "y": 2}), ("f", {"x": 5, "y": 1})])
    # first gold call: 1 + 1 equal value with either prediction, and greedy takes the one that comes first;
    # then the second has to take (5, 1): 1 + 0. The best: (5, 1) for the first, 1 + 1, (1, 2) for the second, 1 + 2.
    assert toolrl.correctness(made, gold, lo=0, hi=1) == pytest.approx((1 + 2 + 3) / 7)
    assert toolrl.correctness(made, gold, lo=0, hi=1, pairing="greedy") == pytest.approx((1 + 2 + 1) / 7)


def test_the_authors_code_knows_no_gold_answer_without_calls():
    answer = written([], response="It is five.")
    assert toolrl.correctness(answer, answer) == 3
    assert toolrl.correctness(GOLD, answer) == -3
    assert toolrl.correctness(answer, answer, pairing="greedy") == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<think>t</think>\n<tool_call>\n",
        "<think>t</think>\n<tool_call>\n{}\n</tool_call>",
        '<tool_call>{"name": "a", "parameters": {"x": 1,}}</tool_call>',
        '<tool_call>{"name": "a", "parameters": {"x": NaN}}</tool_call>',
        '<tool_call>{"name": "a", "parameters": [1]}</tool_call>',
        '<tool_call>{"name": 1, "parameters": {}}</tool_call>',
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name": "a", "parameters": {"x": ' + "9" * 5000 + "}}</tool_call>",
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
        '<tool_call>{"name": "a", "parameters": ' + '{"x":' * 50_000 + "1" + "}" * 50_000 + "}</tool_call>",
        "\ud800" * 10 + "\x00",
    ],
)
def test_calls_that_cannot_be_read_get_the_least(text):
    assert toolrl.correctness(text, GOLD) == -3
    assert toolrl.correctness(text, GOLD, pairing="greedy") == -3


def test_of_a_key_that_stands_twice_the_last_value_counts():
    text = (
        '<tool_call>{"name": "a", "parameters": {"x": 7, "x": 1, "y": 2}}\n{"name": "b", "parameters": {"z": "three"}}'
    )
    assert toolrl.correctness(text + "</tool_call>", GOLD) == 3


@pytest.mark.parametrize(
    "gold", ["", "no tags", "<tool_call>\n{}\n</tool_call>", "<tool_call>{", None, [{"name": 1}], 3]
)
def test_malformed_ground_truth_is_an_error(gold):
    for function in (toolrl.format, toolrl.correctness):
        with pytest.raises(BadReference):
            function(GOLD, gold)


def test_ground_truth_can_be_a_list_of_calls():
    calls = [{"name": name, "parameters": parameters} for name, parameters in (A, B)]
    assert toolrl.correctness(GOLD, calls) == 3
    assert toolrl.format(GOLD, calls) == 1


BOTH, ANSWER = written([A], response="done"), written([], response="done")


@pytest.mark.parametrize(
    ("completion", "answer", "score"),
    [
        (GOLD, GOLD, 1),
        (written([("other", {})]), GOLD, 1),  # what is in the element is not looked at
        (ANSWER, ANSWER, 1),
        (BOTH, BOTH, 1),
        (BOTH, GOLD, 0),  # a response where there is none
        (GOLD, BOTH, 0),
        (GOLD + "\n", GOLD, 0),
        (" " + GOLD, GOLD, 0),
        (GOLD.replace("</think>\n", "</think>"), GOLD, 0),
        (GOLD.replace("<tool_call>\n", "<tool_call>"), GOLD, 0),
        (GOLD.replace("<think>t", "<think>a <tool_call> of"), GOLD, 0),  # each tag once
        (GOLD.replace("</think>", "", 1), GOLD, 0),
        (BOTH.replace("\n<response>", "<response>"), BOTH, 0),
    ],
)
def test_format_by_hand(completion, answer, score):
    assert toolrl.format(completion, answer) == score
    assert toolrl.format(completion.removeprefix("<think>"), answer, opened=True) == score * completion.startswith(
        "<think>"
    )


def test_length_of_thought_counts_words():
    text = written([A], thought="one two\n three" + " more" * 125)
    assert toolrl.think_words(text) == 128
    assert toolrl.think_length(text) == 0.25
    assert toolrl.think_length(text, target=64) == 1
    assert toolrl.think_length("<think>never ends") == 0
    assert toolrl.think_length("a b</think>", target=4) == 0.5  # the prompt had opened it


names = st.sampled_from(["f", "g", "h"])
values = st.sampled_from([1, 2, "1", True, None, 1.5, [1, 2], {"k": 1}])
calls = st.lists(st.tuples(names, st.dictionaries(st.sampled_from("xyz"), values, max_size=3)), max_size=4)
granularities = st.sampled_from(["original", "fine", "intermediate", "coarse"])


def best_by_trying(made, gold):
    """R_max of Sec. 3.3 by every pairing of calls of one name: small lists only."""
    longer = [*made, *[None] * len(gold)]
    best = 0.0
    for order in itertools.permutations(range(len(longer)), len(gold)):
        total = 0.0
        for at, (name, wanted) in zip(order, gold, strict=True):
            call = longer[at]
            if call is None or call[0] != name:
                continue
            either = set(call[1]) | set(wanted)
            total += len(set(call[1]) & set(wanted)) / len(either) if either else 1
            total += sum(k in call[1] and json.dumps(call[1][k]) == json.dumps(v) for k, v in wanted.items())
        best = max(best, total)
    own, theirs = [name for name, _ in made], [name for name, _ in gold]
    shared = sum(min(own.count(n), theirs.count(n)) for n in set(own))
    union = sum(max(own.count(n), theirs.count(n)) for n in {*own, *theirs})
    return shared / union + best


@pytest.mark.slow
@settings(max_examples=150 * FUZZ)
@given(calls.filter(lambda c: len(c) <= 3), calls.filter(lambda c: 1 <= len(c) <= 3))
def test_correctness_is_the_greatest_over_all_pairings(made, gold):
    most = 1 + len(gold) + sum(len(parameters) for _, parameters in gold)
    assert toolrl.correctness(written(made), written(gold)) == pytest.approx(6 * best_by_trying(made, gold) / most - 3)


def as_published(made, gold):
    """The authors' code in other words: one gold call after the other takes what scores most, if it scores at all."""
    own, theirs = [name for name, _ in made], [name for name, _ in gold]
    shared = sum(min(own.count(n), theirs.count(n)) for n in set(theirs))
    score, taken = shared / (len(own) + len(theirs) - shared), set()
    for name, wanted in gold:
        best, best_at = 0, None
        for at, (other, parameters) in enumerate(made):
            if at in taken or other != name:
                continue
            both = len(set(parameters) & set(wanted))
            keys = both / (len(parameters) + len(wanted) - both) if parameters or wanted else 1
            found = keys + sum(parameters.get(k, ...) == v for k, v in wanted.items())  # to Python, 1 is True
            if found > best:
                best, best_at = found, at
        score += best
        taken.add(best_at)
    return 6 * score / (1 + len(gold) + sum(len(wanted) for _, wanted in gold)) - 3


@pytest.mark.slow
@settings(max_examples=200 * FUZZ)
@given(calls.filter(bool), calls.filter(bool))
def test_greedy_pairing_is_the_authors(made, gold):
    found = toolrl.correctness(written(made), written(gold), pairing="greedy")
    assert found == pytest.approx(as_published(made, gold))
    if not any(value is True for _, parameters in made + gold for value in parameters.values()):  # 1 == True in Python
        assert found <= toolrl.correctness(written(made), written(gold)) + 1e-12


@pytest.mark.slow
@settings(max_examples=200 * FUZZ)
@given(calls, calls.filter(bool), granularities, st.randoms(use_true_random=False))
def test_correctness_stays_in_range_and_knows_no_order(made, gold, granularity, random):
    score = toolrl.correctness(written(made), written(gold), granularity=granularity)
    assert -3 <= score <= 3
    random.shuffle(made), random.shuffle(gold)
    assert toolrl.correctness(written(made), written(gold), granularity=granularity) == pytest.approx(score)
    key = lambda call: json.dumps(call, sort_keys=True)  # noqa: E731
    assert (score == 3) == (
        sorted(map(key, made)) == sorted(map(key, gold))
    )  # the greatest is for an exact match alone


@pytest.mark.slow
@settings(max_examples=200 * FUZZ)
@given(calls, calls.filter(bool))
def test_fine_is_never_above_original_and_coarse_never_above_intermediate(made, gold):
    # of one S_max, term by term; and `coarse` is 1 only where every term of `intermediate` is
    score = {
        g: toolrl.correctness(written(made), written(gold), granularity=g)
        for g in ("original", "fine", "intermediate", "coarse")
    }
    assert score["fine"] <= score["original"]
    assert score["coarse"] <= score["intermediate"]


# RC-GRPO, the example of App. D.2

PLAN = [
    {"name": "mv", "arguments": {"src": "report.csv", "dst": "/archive"}},
    {"name": "rm", "arguments": {"path": "temp.log"}},
]


def trajectory(*made):
    return "\n".join(f"<tool_call>{json.dumps(call)}</tool_call> ok" for call in made)


def test_action_is_every_gold_call_in_any_order_with_further_arguments():
    mv, rm = PLAN
    assert rc_grpo.action(trajectory(rm, mv), PLAN) == 1
    assert rc_grpo.action(trajectory(mv, rm, {"name": "touch", "arguments": {}}), json.dumps(PLAN)) == 1
    assert rc_grpo.action(trajectory(mv), PLAN) == 0
    assert rc_grpo.action(trajectory(rm, {"name": "mv", "arguments": {**mv["arguments"], "force": True}}), PLAN) == 1
    assert rc_grpo.action(trajectory(rm, {"name": "mv", "arguments": {"src": "report.csv"}}), PLAN) == 0
    assert rc_grpo.action(trajectory(rm) + "<tool_call>{</tool_call>" + trajectory(mv), PLAN) == 1
    assert rc_grpo.action("", []) == 1
    with pytest.raises(BadReference):
        rc_grpo.action("", "mv(report.csv)")


def test_state_is_deep_equality():
    state = {"/archive": {"report.csv": "1"}, "open": [1, 2]}
    assert rc_grpo.state({"open": [1, 2], "/archive": {"report.csv": "1"}}, state) == 1
    assert rc_grpo.state(json.dumps(state), state) == 1
    assert rc_grpo.state({**state, "temp.log": ""}, state) == 0
    assert rc_grpo.state({**state, "open": [2, 1]}, state) == 0
    assert rc_grpo.state({**state, "open": [True, 2]}, state) == 0
    assert rc_grpo.state(None, state) == 0
    with pytest.raises(BadReference):
        rc_grpo.state(state, None)


# PRS

CALL = '<tool_call>{"name": "search", "arguments": {"q": "capital of France"}}</tool_call>'


def test_process_and_format_by_hand():
    good = f"<reasoning>look it up</reasoning>{CALL}<observation>Paris</observation>\n"
    good += "<reasoning>so</reasoning><answer>Paris</answer>"
    assert (prs.process(good), prs.format(good)) == (1, 0.1)
    assert (prs.process(good.replace("</answer>", "")), prs.format(good.replace("</answer>", ""))) == (0, 0)
    assert (prs.process(good.replace("<answer>Paris", "<answer> ")), prs.process(CALL)) == (0, 0)
    assert prs.process(good.replace('"arguments"', "arguments")) == -1
    assert prs.process("<tool_call></tool_call><answer>Paris</answer>") == -1
    assert prs.process("<tool_call>{" + good) == -1
    assert prs.format("So: " + good) == 0
    assert prs.format(good + "<answer>Rome</answer>") == 0
    assert prs.format("<answer>Paris</answer>") == 0  # begins without reasoning
    assert prs.format("<reasoning>a<reasoning>b</reasoning></reasoning><answer>c</answer>") == 0
    assert prs.format("<think>so</think><answer>x</answer>", tags=("think", "answer")) == 0.1


def answered(text):
    return f"<answer>{text}</answer>"


def test_short_form_bleu_by_hand():
    assert prs.answer(answered("Paris"), "Paris") == 1
    assert prs.answer(answered("Paris"), "Rome") == 0
    assert prs.answer("Paris", "Paris") == 0
    assert prs.answer("Paris", "Paris", tag="none") == 1
    assert prs.answer(answered("the city"), "the city") == 1
    assert prs.answer(answered(""), "Paris") == 0
    # three words, m = 3: precisions 3/3, 2/2, 1/1, and a reference of five words: exp(1 - 5/3)
    assert prs.answer(answered("the city of"), "the city of Paris today") == pytest.approx(exp(1 - 5 / 3))
    # five words, m = 4: 4/5, 3/4, 2/3, 1/2, no brevity penalty
    expected = exp((log(4 / 5) + log(3 / 4) + log(2 / 3) + log(1 / 2)) / 4)
    assert prs.answer(answered("a b c d x"), "a b c d e") == pytest.approx(expected)
    assert prs.answer(answered("Rome"), ["Paris", "Rome"]) == 1
    with pytest.raises(BadReference):
        prs.answer(answered("x"), "")


# the others


def test_exact_match_is_squads():
    assert qa.exact_match(answered("The Eiffel Tower!"), "eiffel tower") == 1
    assert qa.exact_match(answered("Eiffel"), ["Paris", "an  Eiffel"]) == 1
    assert qa.exact_match(answered("Eiffel"), "eiffel tower") == 0
    assert qa.exact_match("eiffel tower", "eiffel tower") == 0
    assert qa.exact_match("eiffel tower", "eiffel tower", tag="none") == 1
    assert qa.exact_match("<answer>no</answer> then <answer>yes</answer>", "yes") == 1
    assert qa.exact_match(answered("a"), "the") == 0  # nothing is left of either


def test_think_format():
    assert think.format("<think>a</think>\n<answer>b</answer>") == 1
    assert think.format("a</think><answer>b</answer>", opened=True) == 1
    assert think.format("<think>a</think><answer>b</answer> and more") == 0
    assert think.format("<think>a</think><answer>b") == 0
    assert think.format("<think></think><answer>b</answer>") == 0
    assert think.format("<answer>b</answer><think>a</think>") == 0
    assert think.format("<think>a<think></think></think><answer>b</answer>") == 0
    assert think.format("<think>a</think> so, b", tags=("think",), then="text") == 1
    assert think.format("<think>a</think>", tags=("think",), then="text") == 0


@pytest.mark.slow
def test_mathematical_answers():
    cases = [
        (r"so \boxed{\frac{1}{2}}", "0.5", 1),
        ("the answer is 0.5", r"\frac12", 1),
        (r"\boxed{3}", 3, 1),
        (r"<think>\boxed{4}</think> it is 5", 4, 0),
        ("$x^2+1$", "$1+x^2$", 1),
        (r"\boxed{(2,3)}", "(2, 3)", 1),
        (r"\boxed{3}", "(2, 3)", 0),
        (r"\boxed{1,000} of them", 1000, 1),
        ("", "1", 0),
        (r"first \boxed{1}, no: \boxed{2}", "2", 1),
        (r"\boxed{2", "2", 0),
    ]
    texts, golds, expected = zip(*cases, strict=True)
    assert math.correct(texts, golds) == list(expected)
    assert math.correct([answered("1/2"), "1/2"], ["0.5", "0.5"], tag="answer") == [1, 0]
    for gold in ("", None, True, [1]):
        with pytest.raises(BadReference):
            math.correct(["1"], [gold])


@pytest.mark.slow
def test_a_monstrous_expression_is_wrong_and_takes_no_time_from_the_others():
    started = time.perf_counter()
    texts = [r"\boxed{9^{9^{9^{9}}}}", r"\boxed{\frac{2}{4}}", r"\boxed{" + "(" * 3000 + "}"]
    assert math.correct(texts, ["7", "1/2", "8"], timeout=2) == [0, 1, 0]
    assert time.perf_counter() - started < 60  # bounded: it would not end in a lifetime


def test_whole_numbers():
    assert [math.integer(answered(x)) for x in ("12", " -7 ", "1,234", "$5$", "12.0", "twelve", "", "1,23")] == [
        1,
        1,
        1,
        1,
        0,
        0,
        0,
        0,
    ]
    assert math.integer(r"\boxed{42}", tag="none") == 1


@pytest.mark.parametrize("tokens", [0, 1, 63, 64, 65, 79, 80, 95, 96, 97, 10**6])
def test_functions_of_the_length_are_what_a_spec_makes_of_them(tokens):
    text = """
rewardspec: 1
components:
  long: {use: gdpo.length, with: {limit: 64}}
  over: {use: "dapo.overlong(max=96, buffer=32)"}
advantage: total
"""
    out = rewardspec.compile(rewardspec.loads(text))({"tokens": [tokens]}, groups=1)
    assert out.rewards["long"].item() == gdpo.length(tokens, limit=64)
    assert out.rewards["over"].item() == pytest.approx(dapo.overlong(tokens, max=96, buffer=32))


def test_overlong_by_hand():
    assert [dapo.overlong(n, max=8192, buffer=4096) for n in (4096, 6144, 8192, 9000)] == [0, -0.5, -1, -1]


# any text whatever

ON_TEXT = [
    found
    for found in all_rewards()
    if "completion" in found.inputs and found.name.partition(".")[0] not in ("code", "judge")
]
REFERENCES = {"answer": {"toolrl": GOLD, "math": "7"}, "gold_calls": json.dumps(PLAN)}


def scored(found, completion):
    family = found.name.partition(".")[0]
    row = {
        "completion": completion,
        "answer": REFERENCES["answer"].get(family, "Paris"),
        "gold_calls": REFERENCES["gold_calls"],
    }
    inputs = [[row[name]] if found.many else row[name] for name in found.inputs]
    value = found.function(*inputs, **found.options({}))
    return value[0] if found.many else value


FRAGMENTS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<answer>",
    "</answer>",
    "<response>",
    "<reasoning>",
    "{",
    "}",
    '"name": ',
    '"a"',
    ",",
    "\\boxed{",
    "$",
    "\n",
    "7",
    "x y",
    "\ud800",
    "\x00",
    "\U0001f600",
    "\u202e",
]


@pytest.mark.slow
@pytest.mark.parametrize("found", ON_TEXT, ids=lambda found: found.name)
@settings(max_examples=40 * FUZZ)
@given(text=st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)))
def test_any_text_gets_a_value_of_the_domain(found, text):
    assert Fraction(repr(scored(found, text))) in found.domain(**found.options({}))


MEGABYTE = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("found", ON_TEXT, ids=lambda found: found.name)
@pytest.mark.parametrize(
    "fragment",
    [*FRAGMENTS, "<think><answer>", "</think", "a ", '{"name": "a", "parameters": {}}\n', "<", "1,", "\\boxed{{", "(("],
)
def test_a_megabyte_of_anything_is_soon_scored(found, fragment):
    """Within seconds, where anything quadratic would take hours."""
    for text in (
        fragment * (MEGABYTE // len(fragment)),
        "<think>" + fragment * (MEGABYTE // len(fragment)) + "</answer></tool_call>",
    ):
        started = time.process_time()
        scored(found, text)
        assert time.process_time() - started < 20


def test_chat_messages_are_read_as_what_the_assistant_wrote():
    messages = [
        {
            "role": "assistant",
            "content": "let me see",
            "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}],
        },
        {"role": "tool", "content": "not its own"},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ]
    assert as_text(messages) == 'let me see\n<tool_call>\n{"name": "f", "parameters": {"x": 1}}\n</tool_call>\ndone'
    assert as_text([{"role": "user", "content": "hello"}]) == "hello"
    assert as_text("text") == "text"


@pytest.mark.parametrize(
    "odd",
    [
        5,
        True,
        None,
        {"role": "assistant"},
        ["a", "b"],
        [{"role": "assistant", "content": 5}],
        [{"content": ["x"]}],
        [{"content": None, "tool_calls": ["x"]}],
        [{"content": None, "tool_calls": {"a": 1}}],
        [{"content": None, "tool_calls": [{"function": None}]}],
    ],
)
def test_what_is_no_text_is_a_bad_rollout(odd):
    scorer = Scorer(rewardspec.loads(ONE_FUNCTION))
    found = scorer.measure([{"completion": odd, "answer": written([A])}, {"completion": "x", "answer": written([A])}])
    assert list(found.bad) == [0] and "completion" in found.bad[0] and found.columns["a"][1] == -3


ONE_FUNCTION = "rewardspec: 1\ncomponents: {a: {use: toolrl.correctness}}\nadvantage: grpo\n"


def test_calls_of_chat_messages_count_for_every_function():
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    chat = [{"role": "assistant", "content": "<think>t</think>", "tool_calls": [call]}]
    for gold in ([call], [{"name": "f", "arguments": '{"x": 1}'}], '[{"name": "f", "parameters": {"x": 1}}]'):
        found = Scorer(rewardspec.loads(ONE_FUNCTION)).measure([{"completion": chat, "answer": gold}])
        assert found.columns["a"] == [3] and not found.bad
        assert rc_grpo.action(as_text(chat), gold) == 1


def test_nulls_that_a_table_adds_are_no_arguments():
    text = written([("f", {"x": 1})])
    table = [{"name": "f", "parameters": {"x": 1, "y": None, "z": {"k": None}}}]
    assert toolrl.correctness(text, [{"name": "f", "parameters": {"x": 1, "y": None}}]) == 3
    assert toolrl.correctness(written([("f", {"x": 1, "z": {}})]), table) == 3
    assert rc_grpo.action(text, [{"name": "f", "arguments": {"x": 1, "y": None}}]) == 1
    in_text = '[{"name": "f", "parameters": {"x": 1, "y": null}}]'  # where it is meant
    assert toolrl.correctness(text, in_text) < 3 and rc_grpo.action(text, in_text) == 0
    with pytest.raises(BadReference):
        toolrl.correctness(text, [{"name": "f", "parameters": {"x": float("nan")}}])


def test_malformed_gold_state_is_a_bad_reference():
    with pytest.raises(BadReference, match="gold state"):
        rc_grpo.state('{"a": 1}', '{"a": 1')
    assert rc_grpo.state('{"a": 1', '{"a": 1}') == 0


@pytest.mark.parametrize("function", ["code.pass_rate", "math.correct", "qa.exact_match"])
def test_all_malformed_ground_truths_are_told_at_once_and_the_rest_is_measured_together(function, monkeypatch):
    spec = rewardspec.loads(f"rewardspec: 1\ncomponents: {{a: {{use: {function}}}}}\nadvantage: grpo\n")
    scorer, sizes = Scorer(spec), []
    known = scorer.measures["a"]
    scorer.measures["a"] = replace(known, ask=lambda given: sizes.append(len(given)) or known.ask(given))
    good = ["assert f(1) == 1"] if function.startswith("code") else "72"
    key = "tests" if function.startswith("code") else "answer"
    rows = [{"completion": "", key: None if i in (2, 5) else good} for i in range(8)]
    found = scorer.measure(rows)
    assert list(found.bad) == [2, 5] and sizes == [8, 6]
    assert [value is None for value in found.columns["a"]] == [i in (2, 5) for i in range(8)]
