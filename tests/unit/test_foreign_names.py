"""Names from torch, numpy and the trainers: each has an answer of its own, and every answer is in the language."""

import re
from io import StringIO

import pytest
from ruamel.yaml import YAML

from rewardspec.language.declarations import GIVEN
from rewardspec.language.keys import COMPONENT, SIGNAL
from rewardspec.language.keys import SPEC as WHOLE
from rewardspec.language.prelude import prelude
from rewardspec.ops.functions import FUNCTIONS
from rewardspec.spec import check
from rewardspec.syntax.foreign import ARGUMENTS, KEYS, NAMES, PART_KEYS, SAME, WORDS
from rewardspec.text.source import Source

TABLES = {"names": NAMES, "keys": KEYS, "part keys": PART_KEYS, "words": WORDS, "arguments": ARGUMENTS}
ANSWERS = sorted({answer for table in TABLES.values() for answer in table.values()})
SPEC = """\
rewardspec: 1
signals:
  x: {range: [1, 100]}
  y: {range: [0, 1]}
  tokens: {range: [0, .inf]}
  greedy: {range: [0, 1], level: group}
components:
  correct: {values: [0, 1]}
advantage: grpo
"""
PIECE = re.compile("`([^`]+)`")


def said(text):
    return check(Source("spec.yaml", text))[1].sorted()


BESIDE = {"otherwise": {"values": [0, 1], "when": "correct >= 1"}, "with": {"use": "gdpo.length"}}
BESIDE |= {key: {} for key in ("expr", "use", "values", "range")}


def with_piece(piece):
    """A spec with the piece in it, where it belongs: an expression, a key of the spec, or a key of a component."""
    if not re.match(r"[\w-]+: ", piece):
        return SPEC.replace("grpo", f"correct + ({piece})")
    yaml = YAML(typ="safe", pure=True)
    ((key, value),) = yaml.load(piece).items()
    whole = yaml.load(SPEC)
    if key in WHOLE.keys:
        whole[key] = {**whole.get(key, {}), **value} if isinstance(value, dict) else value
    elif key in COMPONENT.keys:
        whole["components"]["probe"] = {**BESIDE.get(key, {"range": [0, 1]}), key: value}
    elif key in SIGNAL.keys:
        whole["signals"]["probe"] = {key: value}
    else:
        whole["components"][key] = value
    out = StringIO()
    yaml.dump(whole, out)
    return out.getvalue()


@pytest.mark.parametrize("answer", [*ANSWERS, *(f"`{piece}`" for piece in SAME.values())])
def test_every_answer_is_in_the_language(answer):
    pieces = PIECE.findall(answer)
    assert pieces, "an answer says what to write"
    for piece in pieces:
        text = with_piece(piece)
        assert not [d.render() for d in said(text)], text


def test_no_name_of_the_language_is_foreign():
    known = {*FUNCTIONS, *GIVEN, *prelude(None).values, *prelude(None).functions}
    assert not known & NAMES.keys()
    assert not WHOLE.keys.keys() & KEYS.keys()
    assert not COMPONENT.keys.keys() & PART_KEYS.keys()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_foreign_name_gets_its_answer(name):
    """As a value, and called."""
    text = SPEC.replace("  tokens: {range: [0, .inf]}\n", "")
    found = said(text.replace("grpo", f"{name}(correct) + {name}"))
    assert [d.help for d in found] == [NAMES[name]] * 2


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("torch.clamp(correct, 0, 1)", NAMES["clamp"]),
        ("np.where(correct > 0, 1, 0)", NAMES["where"]),
        ("torch.nn.functional.relu(correct)", NAMES["relu"]),
        ("correct.mean()", "write `mean(x)`"),
        ("(correct - 1).clamp(0, 1)", NAMES["clamp"]),
        ("math.pi * correct", "write `pi`"),
        ("reinforce++", NAMES["reinforce"]),
        ("Dr. GRPO", NAMES["drgrpo"]),
        ("DAPO", NAMES["dapo"]),
        ("correct // 2", "write `floor(x / 2)`"),
        ("min(correct, .inf)", NAMES["inf"]),
        ("zscore(correct, dim=0)", ARGUMENTS["dim"]),
        ("std(correct, unbiased=1)", ARGUMENTS["unbiased"]),
    ],
)
def test_what_is_written_as_elsewhere_gets_an_answer(written, answer):
    (found,) = said(SPEC.replace("grpo", written))
    assert found.help == answer


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("reward_weights: [1, 2]", KEYS["reward_weights"]),
        ("scale_rewards: false", KEYS["scale_rewards"]),
        ("components: {a: {values: [0, 1], gate: correct}}", PART_KEYS["gate"]),
        ("components: {a: {values: [0, 1], level: prompt}}", WORDS["prompt"]),
        ("components: {a: {range: [0, 1], missing: skip}}", WORDS["skip"]),
        ("components: {a: {values: [true, false]}}", "write truth values as numbers: `values: [0, 1]`"),
        ("components: {a: {range: [0, inf]}}", NAMES["inf"]),
        ("components: {a: {values: [0, inf]}}", NAMES["inf"]),
    ],
)
def test_foreign_keys_and_words_get_an_answer(line, answer):
    text = "rewardspec: 1\ncomponents: {correct: {values: [0, 1]}}\nadvantage: grpo\n"
    text = text.replace("components: {correct: {values: [0, 1]}}", line) if "components" in line else text + line + "\n"
    (found,) = said(text)
    assert found.help == answer


def test_the_specs_own_names_come_first():
    text = SPEC.replace("  y:", "  KL: {range: [0, 1]}\n  y:")
    (found,) = said(text.replace("grpo", "kl + correct"))
    assert found.help == "did you mean `KL`?"


# Text that a comma cut


@pytest.mark.parametrize(
    "cut",
    [
        "{expr: min(x, y)}",
        "{expr: 'min(x' , weight: 2}",
        "{expr: mean(x, over=batch) - min(y, 0), weight: 2}",
        "{scale: [min(1, max(progress, 2)), 3], range: [0, 1]}",
        '{expr: min(x, "a b"), weight: 2}',
        "{expr: clamp(x, 0, 1) +, weight: 2}",
        "{expr: min(x, y, weight: 2}",
        "{expr: min((x, y), weight: 2}",
        "{expr: min(x, " + "y + " * 40 + "y)}",
        "{expr: x if max(x, y) > 1 else min(x, y), when: min(correct, 1) >= 1}",
        "{expr: min(x, y)}, other: {half(x, y): 2}",
    ],
)
def test_what_a_comma_message_proposes_reads(cut):
    text = (
        SPEC.replace("{values: [0, 1]}", "{values: [0, 1]}\n  cut: " + cut)
        if "other" not in cut
        else SPEC.replace(
            "components:\n  correct: {values: [0, 1]}", f"components: {{correct: {{values: [0, 1]}}, cut: {cut}}}"
        )
    )
    for found in said(text):
        if found.code == "yaml-comma" and (proposed := re.search('`"(.*)"`', found.help)):
            assert not [
                d.render() for d in said(SPEC.replace("grpo", f'"{proposed[1]}"')) if d.code in ("syntax", "yaml")
            ]


@pytest.mark.parametrize(
    ("text", "proposed"),
    [
        ("components: {a: {values: [0, 1]}, b: {expr: min(a, 1)}}", '"min(a, 1)"'),
        ("components: {a: {values: [0, 1]}, b: {range: [0, 1], scale: [min(1, max(2, 3)), 4]}}", '"min(1, max(2, 3))"'),
        ("components: {a: {values: [0, 1]}}\ndefine: {half(x, y): x * y}", '"half(x, y)"'),
    ],
)
def test_an_expression_that_a_comma_cut_is_proposed_whole(text, proposed):
    (found,) = said(f"rewardspec: 1\n{text}\nadvantage: grpo\n")
    assert (found.code, f"`{proposed}`" in found.help) == ("yaml-comma", True)
