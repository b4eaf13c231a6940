"""Findings: cases in words, claims against brute force, and what people and programs see of them."""

import json
import random
import re
from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, product
from pathlib import Path

import numpy as np
import pytest
import torch
from commands_in_process import run
from places import FUZZ, SPECS
from reference import formulas as ref
from test_cases import CASE

import rewardspec
from rewardspec.groups.rates import read_rates
from rewardspec.lint import Run, codes, findings, page, registered
from rewardspec.lint.facts import MOST_TRIED, Facts
from rewardspec.lint.pages import PAGES
from rewardspec.spec import check
from rewardspec.text.source import Source

FOLDER = Path(__file__).parent / "findings"
OF_ALLOW = [code for code, page in PAGES.items() if not page.is_error]


def diagnosed(text, options):
    """What `check` finds under the options in a line such as `--p correct=0.3 -g 4,8`."""
    spec, report = check(Source("spec.yaml", text))
    options = dict(re.findall(r"(--p|-g|--total-steps) ([^\s`A-Z]+)", options))
    rates = read_rates(options["--p"]) if "--p" in options else {}
    sizes = [int(size) for size in options.get("-g", "").split(",") if size]
    steps = int(options["--total-steps"]) if "--total-steps" in options else None
    if spec is None:
        return report.sorted()
    found = findings(spec, Run(rates, sizes, steps))
    return [*report.sorted(), *found.warnings, *found.notes]


def said(text):
    """What `check` says; the options that a case asks for stand in its first comment: `# --p correct=0.3 -g 4,8`."""
    return "\n\n".join(d.render() for d in diagnosed(text, text.partition("\n")[0])) or "nothing to say"


def cases():
    """Those of every finding; the first that draws it, and the first that does not, are among the fast tests."""
    for path in sorted(FOLDER.glob("*.md")):
        tried = Counter()
        for match in CASE.finditer(path.read_text(encoding="utf-8")):
            drawn = f"[{path.stem}]" in match["said"]
            tried[drawn] += 1
            marks = [pytest.mark.slow] if tried[drawn] > 1 else []
            yield pytest.param(path, match["spec"], match["said"], id=f"{path.stem}: {match['name']}", marks=marks)


@pytest.mark.parametrize(("path", "spec", "expected"), list(cases()))
def test_case(path, spec, expected, agrees):
    agrees(path, spec, expected, said(spec))


def test_every_finding_has_cases_that_draw_it_and_cases_that_do_not():
    for code in [*registered(), *OF_ALLOW]:
        text = (FOLDER / f"{code}.md").read_text(encoding="utf-8")
        drawn = [f"[{code}]" in match["said"] for match in CASE.finditer(text)]
        assert any(drawn), code
        assert not all(drawn), code


@pytest.mark.parametrize("code", codes())
def test_every_finding_has_a_page(code):
    text = page(code)
    assert len(text.split("\n\n")) >= 3
    assert all(len(line) <= 120 for line in text.splitlines())


def test_what_no_component_can_allow_is_found_in_what_is_the_specs():
    """In all cases, and nowhere else; of the rest there is none that is found there alone."""
    lines = {}
    for path in FOLDER.glob("*.md"):
        for match in CASE.finditer(path.read_text(encoding="utf-8")):
            for found in re.finditer(r"^warning\[(.+)\]: .*\n *--> spec.yaml:(\d+):", match["said"], re.M):
                lines.setdefault(found[1], set()).add(match["spec"].split("\n")[int(found[2]) - 1].split(":")[0])
    of_spec = {code for code in lines if lines[code] <= {"advantage", "keep"}} - MORE_THAN_ADVANTAGES
    assert of_spec | {"state-unread"} == {one.code for one in registered().values() if one.of_spec}


MORE_THAN_ADVANTAGES = {"by-splits-group", "normalised-twice", "spread-always-zero", "tiny-divisor"}  # any expression


INSTEAD = {  # what of the example on a page is written otherwise, and how; the page says so, too
    "tiny-divisor": [("style / (std(style) + 1e-9)", "zscore(style)")],
    "eps-outweighs-spread": [("numerics: {eps: 0.01}", "numerics: {eps: 1e-6}")],
    "one-unit-decides": [('"1 - min(tokens / 4000, 1)"', "tokens <= 4000")],
    "gate-always-open": [("when: correct >= 0", "when: correct >= 1")],
    "gate-on-moving-scale": [("when: correctness >= 2", "when: raw(correctness) >= 3")],
    "ungated-sibling": [("style: {range: [0, 1]}", "style: {range: [0, 1], when: correct >= 1}")],
    "length-without-success": [("length: tokens <= 4000", "length: {expr: tokens <= 4000, when: correct >= 1}")],
    "zero-weight": [("weight: 0", "weight: 0.1")],
    "component-unread": [("advantage: zscore(correct)", "advantage: gdpo")],
    "baseline-depends-on-stopping": [
        ("center(gained, by=position)", "returns(gained) - mean(sum(gained, over=rollout))")
    ],
    "long-rollouts-outweigh": [("center(gained)", "gained - mean(mean(gained, over=rollout))")],
    "more-items-rewarded": [("sum(called, over=rollout)", "min(sum(called, over=rollout), 1)")],
    "all-of-no-items": [("all(well, over=rollout)", "all(well, over=rollout) and any(well, over=rollout)")],
    "discount-without-effect": [("returns(gained, gamma=0.9) > 0", "returns(gained, gamma=0.9)")],
    "component-without-effect": [
        ("sum(center(tool, over=rollout), over=rollout)", "center(sum(tool, over=rollout))"),
    ],
    "state-unread": [("advantage: dr_grpo", "advantage: correct - level")],
    "keep-never-holds": [("mean(correct) > 1", "0 < mean(correct) and mean(correct) < 1")],
    "constant-component": [("bonus: difficulty", "bonus: difficulty * correct")],
    "scale-turns-sign": [
        ("scale: [1, -1]", "scale: [-1, 1]"),
        ("errors: {range: [0, 10], scale: [1, 0]}", "errors: {range: [0, 10], weight: -0.1}"),
    ],
    "weight-without-effect": [("advantage: grpo", "advantage: dr_grpo")],
    "scale-without-effect": [("advantage: gdpo", "advantage: grpo")],
    "abrupt-schedule": [
        ("weight: 1 if step < 30 else 0.5", 'weight: "1 - 0.5 * ramp(step, start=20, end=60)"'),
    ],
    "schedule-never-moves": [
        ('weight: "1 - ramp(progress, start=1, end=2)"', 'weight: "1 - ramp(progress, start=0.5, end=1)"')
    ],
    "dead-groups": [],  # larger groups
    "batch-step-amplifies": [("advantage: gdpo", "advantage: decoupled")],
    "group-of-one": [("advantage: batch_grpo", "advantage: zscore(total, over=batch)")],
    "spread-always-zero": [("where=style == max(style)", "where=rank(style) > group_size / 2")],
    "by-splits-group": [("by=tokens", "by=tokens > 2000")],
    "missing-silences-group": [("keep: all(present(judge))\n", "")],
    "missing-ends-run": [("judge - 1/2", "coalesce(judge, mean(judge), 0)")],
    "advantage-undefined": [("max(style, where=correct)", "coalesce(max(style, where=correct), 0)")],
    "policies-disagree": [("missing: zero", "missing: ignore")],
    "easy-above-hard": [("weight: 0.5", "weight: 0.5, when: correct >= 1")],
    "schedule-out-of-reach": [("ramp(step, start=0, end=300)", "ramp(progress, end=0.8)")],
    "normalised-twice": [("advantage: zscore(grpo)", "advantage: zscore(total, over=batch)")],
    "sum-merges-groups": [("advantage: grpo", "advantage: gdpo")],
    "phantom-gradient": [("format: {values: [0, 1]}", "format: {values: [0, 1], when: correct >= 1}")],
    "wrong-above-right": [("weight: 2", "weight: 2, when: correct >= 1")],
    "unreachable-stage": [("when: process < 1", "when: answer >= 1")],
    "stage-lowers-total": [("  staged:\n", "  staged:\n    squash: sigmoid\n")],
    "stages-out-of-order": [
        ("{add: bonus, when: score >= 0.8}", "{add: bonus, when: score >= 0.5}"),
        ("{add: extra, when: score >= 0.5}", "{add: extra, when: score >= 0.8}"),
    ],
    "no-baseline": [("advantage: total", "advantage: grpo")],
    "negative-outcome": [("weight: -1", "weight: 1")],
    "hides-prelude": [
        ("grpo: correct + format - mean(correct + format)", "summed: correct + format - mean(correct + format)"),
        ("advantage: grpo", "advantage: summed"),
    ],
    "equality-on-interval": [("score == 1", "score >= 1")],
    "keep-dead-groups": [("keep: mean(correct) > 0", "keep: 0 < mean(correct) < 1")],
    "schedule-turns-sign": [("weight: 1 - step / 100", 'weight: "max(1 - step / 100, 0)"')],
    "gate-never-opens": [("when: correct >= 2", "when: correct >= 1")],
    "otherwise-needed": [("when: correct >= 1", "when: correct >= 1, otherwise: -3")],
    "refill-alone": [("refill:", "keep: var(total, ddof=0) >= 1e-6\nrefill:")],
    "yaml-comma": [("{expr: min(a, 1)}", '{expr: "min(a, 1)"}')],
    "bundle-left-over": [("weights * zscore(rewards)", "sum(weights * zscore(rewards), over=components)")],
    "no-reason": [("{phantom-gradient: }", "{phantom-gradient: the format is to be learnt first}")],
    "unknown-finding": [("phantom-gradiant", "phantom-gradient")],
    "allow-without-effect": [
        (", allow: {phantom-gradient: the format is to be learnt first}", ""),
        ("advantage: gdpo", "advantage: gdpo\nallow: {phantom-gradient: the format is to be learnt first}"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("code", codes())
def test_example_on_a_page_draws_its_finding_and_what_to_write_instead_does_not(code):
    text = page(code)
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    found = diagnosed("rewardspec: 1\n" + example, text)
    assert code in {d.code for d in found}
    assert {d.code for d in found if d.severity == "error"} <= {code}
    for old, new in INSTEAD[code]:
        assert example.count(old) == 1, old
        example = example.replace(old, new)
    found = diagnosed("rewardspec: 1\n" + example, "--p correct=0.05 -g 16" if code == "dead-groups" else text)
    assert not [d for d in found if d.severity == "error" or d.code == code]
    for _, new in INSTEAD[code]:
        assert set(re.findall(r"\w+", new)) <= set(re.findall(r"\w+", text)), (new, "is not on the page")


OTHER_WAYS_OUT = [  # of the pages that name several
    ("long-rollouts-outweigh", "zscore(correct) + center(gained)", "zscore(sum(gained, over=rollout))"),
    ("more-items-rewarded", "sum(called, over=rollout)", "coalesce(mean(called, over=rollout), 0)"),
    (
        "more-items-rewarded",
        "sum(called, over=rollout)",
        "sum(called, over=rollout) - 0.5 * count(position, over=rollout)",
    ),
    ("all-of-no-items", "all(well, over=rollout)", "coalesce(mean(well, over=rollout), 0)"),
    ("discount-without-effect", "returns(gained, gamma=0.9) > 0", "returns(gained) > 0"),
    ("component-without-effect", "sum(center(tool, over=rollout), over=rollout)", "center(tool)"),
    ("tiny-divisor", "style / (std(style) + 1e-9)", "(style / std(style) if std(style) > 0 else 0)"),
    ("eps-outweighs-spread", "tidy: {values: [0, 0.001]}", "tidy: {values: [0, 0.001], scale: [0, 1]}"),
    ("one-unit-decides", '"1 - min(tokens / 4000, 1)"', "floor(tokens / 500) / 8"),
    ("one-unit-decides", "gdpo", "center(correct) + center(brief) / max(std(brief), 0.1)"),
    ("one-unit-decides", "gdpo", "dr_grpo"),
    ("gate-always-open", ", when: correct >= 0", ""),
    ("component-unread", "zscore(correct)", "grpo"),
    ("constant-component", "correct: {values: [0, 1]}", "correct: {values: [0, 1], weight: difficulty}"),
    ("weight-without-effect", ", weight: 10", ""),
    ("scale-without-effect", "scale: [-2 + progress, 2 - progress]", "weight: 2 - progress"),
    ("spread-always-zero", "zscore(style, where=style == max(style))", "style - mean(style)"),
    ("by-splits-group", "by=tokens", "by=floor(tokens / 1000)"),
    ("missing-ends-run", "judge - 1/2", "center(judge)"),
    ("missing-ends-run", "center(correct) + judge - 1/2", "gdpo"),
    ("advantage-undefined", "advantage:", "keep: any(correct)\nadvantage:"),
    ("easy-above-hard", "decoupled", "grpo"),
    ("normalised-twice", "zscore(grpo)", "gdpo"),
    ("phantom-gradient", "advantage:", "keep: any(correct)\nadvantage:"),
    ("otherwise-needed", "when: correct >= 1", "when: correct >= 1, otherwise: ignore"),
    ("bundle-left-over", "weights * zscore(rewards)", "gdpo"),
    ("keep-dead-groups", "mean(correct) > 0", "var(correct, ddof=0) >= 1e-6"),
    ("equality-on-interval", "score == 1", "score >= 0.99"),
    ("no-baseline", "total", "whiten(total)"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("code", "old", "new"), OTHER_WAYS_OUT)
def test_other_ways_out_on_a_page_mend_too(code, old, new):
    text = page(code)
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    assert old in example
    if code == "constant-component":
        example = re.sub(r"  bonus: .*\n", "", example)  # which becomes the weight
    found = diagnosed("rewardspec: 1\n" + example.replace(old, new), text)
    said = {d.code for d in found}
    assert code not in said
    assert "weight-without-effect" not in said
    assert "scale-without-effect" not in said
    assert not [d.render() for d in found if d.severity == "error"]
    assert set(re.findall(r"\w+", new)) <= set(re.findall(r"\w+", text)), "it is not on the page"


def test_pages_close_their_examples():
    """Each fence stands alone at the start of a line, so that what follows is read as text."""
    for code in codes():
        fences = re.findall(r"^(.*```.*)$", page(code), re.M)
        assert fences == ["```yaml", "```"], code


NO_THREAD = ("It follows from", "It is a rule of this language")


@pytest.mark.parametrize("code", codes())
def test_page_names_a_source_or_says_that_there_is_none(code):
    source = re.search(r"[\w.-]+#\d+|arXiv:\d{4}\.\d{5}|(PRS|PAPO|GDPO|YAML)\b.*(Eq\.|Sec\.) \d|VSPO", page(code))
    assert source or any(words in " ".join(page(code).split()) for words in NO_THREAD)


# Claims against brute force

SCHEMES = ["grpo", "dr_grpo", "rloo", "decoupled", "gdpo", "batch_grpo"]


def random_spec(draw):
    """A spec text of one to three components with weights, scales and gates, and what the reference needs of it."""
    n = draw.randint(1, 3)
    lines, parts = [], []
    for i in range(n):
        values = draw.choice([[0, 1], [0, 1], [0, 0.5, 1], [-1, 0, 1], [0, 0.25, 2]])
        weight = draw.choice([None, 1, 2, 0.5, -1])
        scale = draw.choice([None, None, (-1, 1), (2, 0), (0, 10)])
        gate = i > 0 and draw.random() < 0.4
        name = draw.choice(["correct", "outcome", "depth"]) if i == 0 else f"c{i}"
        first = name if i == 0 else first  # noqa: F821
        line = f"  {name}: {{values: {values}"
        line += f", scale: [{scale[0]}, {scale[1]}]" if scale else ""
        line += f", weight: {weight}" if weight is not None else ""
        line += f", when: {first} >= 1, otherwise: 0" if gate else ""
        lines.append(line + "}\n")
        parts.append((name, values, scale, 1.0 if weight is None else float(weight), gate))
    scheme = draw.choice(SCHEMES)
    return "rewardspec: 1\ncomponents:\n" + "".join(lines) + f"advantage: {scheme}\n", parts, scheme


def rewards_of(parts, columns, drop_scale=None):
    """Shaped rewards by hand."""
    found = {}
    for name, values, scale, _, gate in parts:
        x = columns[name]
        if scale and name != drop_scale:
            x = scale[0] + (x - values[0]) * (scale[1] - scale[0]) / (values[-1] - values[0])
        if gate:
            x = np.where(found[parts[0][0]] >= 1, x, 0.0)
        found[name] = x
    return found


def advantages_of(parts, scheme, columns, groups, double=None, drop_scale=None):
    rewards = rewards_of(parts, columns, drop_scale)
    weights = {name: weight * (2 if name == double else 1) for name, _, _, weight, _ in parts}
    return ref.SCHEMES[scheme](rewards, weights, groups, eps=0.0)


MANY = 30 * FUZZ


NOT_THERE = {"gate-always-open", "schedule-out-of-reach", "tiny-divisor", "eps-outweighs-spread", "advantage-undefined"}
NOT_THERE |= {"missing-ends-run", "missing-silences-group", "spread-always-zero", "by-splits-group", "one-unit-decides"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_false_claim(seed):
    """`FUZZ=170 pytest tests/cases/test_findings.py` looks at 10,000 specs."""
    draw = random.Random(seed)
    for _ in range(MANY):
        text, parts, scheme = random_spec(draw)
        spec = rewardspec.loads(text)
        found = findings(spec).warnings
        rng = np.random.default_rng(draw.randrange(2**32))
        groups = np.repeat(np.arange(60), rng.integers(2, 6, 60))
        columns = {name: rng.choice(np.array(values, dtype=float), len(groups)) for name, values, *_ in parts}
        plain = advantages_of(parts, scheme, columns, groups)
        for diagnostic in found:
            name = next((n for n, *_ in parts if f"`{n}`" in diagnostic.message), None)
            if diagnostic.code == "weight-without-effect":
                other = advantages_of(parts, scheme, columns, groups, double=name)
                np.testing.assert_allclose(other, plain, atol=1e-6, err_msg=text)
            elif diagnostic.code == "scale-without-effect":
                other = advantages_of(parts, scheme, columns, groups, drop_scale=name)
                np.testing.assert_allclose(other, plain, atol=1e-6, err_msg=text)
            elif diagnostic.code in NOT_THERE:
                raise AssertionError(text)
            elif diagnostic.code in ("wrong-above-right", "phantom-gradient"):
                assert exists(parts, scheme, diagnostic.code), text
            elif diagnostic.code == "easy-above-hard":
                easy, hard = re.match(
                    "a rollout with only `(.+)` can outrank one with only `(.+)`:", diagnostic.message
                ).groups()
                shown, shown_advantages = group_of(diagnostic.message)
                by_hand = advantages_before_normalisation(parts, scheme, shown)
                np.testing.assert_allclose(shown_advantages, by_hand, rtol=5e-3, atol=1e-9, err_msg=text)
                top, least = ({n: end(shown[n]) for n in (easy, hard)} for end in (np.max, np.min))
                only_hard = (shown[hard] == top[hard]) & (shown[easy] == least[easy])
                only_easy = (shown[hard] == least[hard]) & (shown[easy] == top[easy])
                assert by_hand[only_easy].max() > by_hand[only_hard].min(), text
            elif diagnostic.code == "sum-merges-groups":
                assert scheme in ("grpo", "dr_grpo", "rloo", "batch_grpo"), text


WEIGHTS = [None, "2", "0.5", "1 - progress / 2", "progress", "d1", "2 * d1", "1 + (step > 30)", "3 * d1 - progress"]
SCALES = [None, None, "[-1, 1]", "[0, 10]", "[-2 - progress, 2 + progress]", "[0, 1 + progress]", "[progress - 1, 1]"]
KEEPS_OF = ["", "", "", "any({0} > 0.9)", "mean(total) > 0.55", "max({0}) > 9", "var({0}) > 0"]
STEPS = [0, 10, 25, 30, 31, 50, 75, 99, 100]


def random_moving_spec(draw):
    """Components with weights and scales that move, or go by the group, behind gates; as keys with their texts."""
    found = {}
    for i in range(draw.randint(1, 3)):
        name = draw.choice(["correct", "math_correct", "answer_tags", "depth"]) if i == 0 else f"c{i}"
        keys = {"values": draw.choice(["[0, 1]", "[0, 1]", "[-1, 1]", "[0, 0.5, 1]", "[-3, 1, 3]"])}
        keys |= {"scale": draw.choice(SCALES), "weight": draw.choice(WEIGHTS), "otherwise": None, "when": None}
        if i and draw.random() < 0.5:
            gate = draw.choice(
                ["{} > 0.9", "{} > 0.01", "{} < 0.9", "raw({}) >= 1"]
            )  # 1 itself is a matter of rounding
            keys |= {"when": gate.format(next(iter(found))), "otherwise": "0"}
        found[name] = keys
    keep = draw.choice(KEEPS_OF).format(next(iter(found)))
    advantage = draw.choice([*SCHEMES, *SCHEMES, f"zscore({next(iter(found))})"])
    return found, advantage, keep


def text_of(parts, advantage, keep):
    lines = [
        f"  {name}: {{{', '.join(f'{key}: {value}' for key, value in keys.items() if value is not None)}}}\n"
        for name, keys in parts.items()
    ]
    return (
        "rewardspec: 1\nsignals: {d1: {values: [1, 2], level: group}}\ncomponents:\n"
        + "".join(lines)
        + (f"keep: {keep}\n" if keep else "")
        + f"advantage: {advantage}\nnumerics: {{eps: 0}}\n"
    )


def all_groups(parts):
    """Every group of two and some of three and four, for both values of `d1`."""
    rollouts = list(product(*(json.loads(keys["values"]) for keys in parts.values())))
    draw = random.Random(0)
    groups = list(combinations_with_replacement(rollouts, 2))
    groups += [
        tuple(draw.choices(draw.sample(rollouts, min(3, len(rollouts))), k=n)) for n in (3, 4) for _ in range(80)
    ]
    groups = [(members, d1) for members in groups for d1 in (1.0, 2.0)]
    ids = np.concatenate([[i] * len(members) for i, (members, _) in enumerate(groups)])
    columns = {name: np.array([m[at] for g, _ in groups for m in g], float) for at, name in enumerate(parts)}
    return columns | {"d1": np.array([d1 for g, d1 in groups for _ in g])}, ids


def at_each_step(text, columns, ids):
    fn = rewardspec.compile(rewardspec.loads(text))
    return [fn(columns, ids, step=step, total_steps=100) for step in STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_false_claim_of_what_moves(seed):
    """Schedules, columns of the group, gates and `keep`, held against the compiled function at several steps."""
    draw = random.Random(1000 + seed)
    for _ in range(MANY // 5):
        parts, advantage, keep = random_moving_spec(draw)
        text = text_of(parts, advantage, keep)
        spec, _ = check(Source("spec.yaml", text))
        if spec is None:
            continue
        said = findings(spec).warnings
        if not said:
            continue
        columns, ids = all_groups(parts)
        out = at_each_step(text, columns, ids)
        for d in said:
            is_true = claim_holds(d, parts, advantage, keep, columns, ids, out)
            assert is_true, f"{d.code}: {d.message}\n{text}"


def claim_holds(diagnostic, parts, advantage, keep, columns, ids, out):
    code, message = diagnostic.code, diagnostic.message
    name = next((n for n in re.findall("`(.+?)`", message) if n in parts), None)
    advantages = [o.advantages.numpy() for o in out]
    if code in ("weight-without-effect", "scale-without-effect"):
        keys = parts[name]
        changed = {"weight": f"2 * ({keys['weight']})"} if code.startswith("weight") else {"scale": None}
        others = at_each_step(text_of({**parts, name: keys | changed}, advantage, keep), columns, ids)
        return all(np.allclose(a, b.advantages.numpy(), atol=1e-5) for a, b in zip(advantages, others, strict=True))
    if code == "component-unread":
        others = at_each_step(text_of(parts, advantage, keep), columns | {name: columns[name][::-1].copy()}, ids)
        return all(np.array_equal(a, b.advantages.numpy()) for a, b in zip(advantages, others, strict=True))
    if code == "constant-component":
        return all(np.ptp(o.rewards[name].numpy()[ids == i]) < 1e-6 for o in out for i in range(ids[-1] + 1))
    if code == "keep-never-holds":
        return not any(o.kept.any() for o in out)
    if code == "gate-always-open":
        other = at_each_step(
            text_of({**parts, name: parts[name] | {"when": None, "otherwise": None}}, advantage, keep), columns, ids
        )
        return all(np.array_equal(o.rewards[name], b.rewards[name]) for o, b in zip(out, other, strict=True))
    if code == "gate-on-moving-scale":
        probe = text_of({**parts, name: {"values": "[1, 2]", "when": parts[name]["when"]}}, "dr_grpo", "")
        seen = np.array(
            [o.rewards[name].numpy() for o in at_each_step(probe, columns | {name: columns[name] * 0 + 1}, ids)]
        )
        return bool((seen != seen[0]).any())
    if code == "abrupt-schedule":
        return parts[name]["weight"] == "1 + (step > 30)"
    if code in ("phantom-gradient", "wrong-above-right"):
        outcome = next(iter(parts))
        for o, a in zip(out, advantages, strict=True):
            right = o.rewards[outcome].numpy() == o.rewards[outcome].numpy().max()
            for i in range(ids[-1] + 1):
                of, own = right[ids == i], a[ids == i]
                if code == "phantom-gradient" and not of.any() and np.ptp(own) > 1e-6:
                    return True
                if code != "phantom-gradient" and of.any() and not of.all() and own[of].min() < own[~of].max() - 1e-6:
                    return True
        return False
    if code == "ungated-sibling":
        return parts[name]["when"] is None
    if code == "keep-dead-groups":
        seen = False
        for o, a in zip(out, advantages, strict=True):
            first = o.rewards[next(iter(parts))].numpy()
            all_right = [i for i in range(ids[-1] + 1) if o.kept[i] and (first[ids == i] == first.max()).all()]
            if any(np.abs(a[ids == i]).max() > 1e-6 for i in all_right):
                return False
            seen = seen or bool(all_right)
        return seen
    return code in ("zero-weight", "easy-above-hard", "sum-merges-groups")


def group_of(message):
    """The rewards and the advantages of a group that a message shows: `2 x (a 1, b 0) gets 0.5; (a 0, b 1) gets -1`."""
    rewards, advantages = {}, []
    for times, values, advantage in re.findall(r"(?:(\d+) x )?\(([^)]*)\) gets ([-+.e\d]+)", message):
        for name, value in (pair.split(" ") for pair in values.split(", ")):
            rewards.setdefault(name, []).extend([float(value)] * int(times or 1))
        advantages += [float(advantage)] * int(times or 1)
    return {name: np.array(values) for name, values in rewards.items()}, np.array(advantages)


def advantages_before_normalisation(parts, scheme, rewards):
    """Of one group; a reward that is not shown is the same for all of it, so nothing depends on it."""
    weights = {name: weight for name, _, _, weight, _ in parts if name in rewards}
    size = len(next(iter(rewards.values())))
    return ref.WITHOUT_BATCH_STEP[scheme](rewards, weights, ["p"] * size, eps=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15 * FUZZ))
def test_merged_groups_are_those_that_are_counted_one_by_one(seed):
    """At the moment, or for the column of the group, that is named; and nothing is said where nothing is merged."""
    draw = random.Random(seed)
    names = ["a", "b", "c", "d"][: draw.choice([2, 2, 3, 4])]
    weights = [draw.choice(["1", "1", "2", "0.5", "3 - 2 * progress", "progress", "d1", "2 * d1"]) for _ in names]
    gated = [i > 0 and draw.random() < 0.3 for i in range(len(names))]
    scheme = draw.choice(["grpo", "dr_grpo", "rloo", "decoupled"])
    text = "rewardspec: 1\nsignals: {d1: {values: [1, 2], level: group}}\ncomponents:\n" + "".join(
        f"  {name}: {{values: [0, 1], weight: {weight}{', when: a >= 1' * is_gated}}}\n"
        for name, weight, is_gated in zip(names, weights, gated, strict=True)
    )
    found = [
        d.message for d in findings(rewardspec.loads(text + f"advantage: {scheme}\n")).warnings if "merges" in d.code
    ]
    parts = [(name, [0, 1], None, 1.0, is_gated) for name, is_gated in zip(names, gated, strict=True)]
    if scheme == "decoupled":
        assert not found, text
    for message in found:
        own, size, apart = map(int, re.findall(r"(?:leaves|size) (\d+)", message))
        progress, d1 = (re.search(pattern, message) for pattern in (r"progress (\S+)[; ]", r"`d1` is (\d)"))
        known = {"progress": float(progress[1].strip(";")) if progress else 0.0, "d1": float(d1[1]) if d1 else 1.0}
        at = {name: float(eval(weight, {}, known)) for name, weight in zip(names, weights, strict=True)}
        counted = {scheme: set(), "decoupled": set()}
        columns = [dict(zip(names, map(float, row), strict=True)) for row in product([0, 1], repeat=len(names))]
        rollouts = {tuple(float(value) for value in rewards_of(parts, row).values()) for row in columns}
        for members in combinations_with_replacement(sorted(rollouts), size):
            rewards = {name: np.array([float(m[i]) for m in members]) for i, name in enumerate(names)}
            for s, groups in counted.items():
                groups.add(
                    tuple(sorted(np.round(ref.WITHOUT_BATCH_STEP[s](rewards, at, ["p"] * size, eps=0.0), 7) + 0.0))
                )
        assert (len(counted[scheme]), len(counted["decoupled"])) == (own, apart), text


FEW_VALUES = 1000


@pytest.mark.slow
@pytest.mark.parametrize("most", [None, FEW_VALUES])
@pytest.mark.parametrize("seed", range(20))
def test_share_of_dead_groups_is_that_of_all_groups_tried_one_by_one(seed, most, monkeypatch):
    """Or less, said as "at least", where few groups can be looked at."""
    if most is not None:
        monkeypatch.setattr("rewardspec.lint.rules.dead_groups.MOST_VALUES", most)
    draw = random.Random(seed)
    gate = draw.random() < 0.5
    parts = [
        (name, [0, 1], None, draw.choice([1.0, 2.0]), gate and name == "b")
        for name in ("a", "b")[: draw.choice([1, 2, 2])]
    ]
    scheme, size = draw.choice(["grpo", "dr_grpo", "rloo", "decoupled"]), draw.choice([2, 3, 4])
    rates = {name: draw.choice([0.02, 0.1, 0.3, 0.5, 0.95]) for name, *_ in parts}
    dead = 0.0
    for members in product(product([0, 1], repeat=len(parts)), repeat=size):
        columns = {name: np.array([m[i] for m in members], dtype=float) for i, name in enumerate(rates)}
        odds = np.prod([np.where(columns[name] > 0, p, 1 - p).prod() for name, p in rates.items()])
        dead += odds * (np.ptp(advantages_before_normalisation(parts, scheme, rewards_of(parts, columns))) < 1e-9)
    components = ", ".join(
        f"{name}: {{values: [0, 1], weight: {weight}{', when: a >= 1' * is_gated}}}"
        for name, _, _, weight, is_gated in parts
    )
    text = f"rewardspec: 1\ncomponents: {{{components}}}\nadvantage: {scheme}\n"
    found = findings(
        rewardspec.loads(text), Run({name: Fraction(str(p)) for name, p in rates.items()}, [size])
    ).warnings
    said = [d.message for d in found if d.code == "dead-groups"]
    shares = [int(re.search(r"(\d+)%", message)[1]) for message in said]
    if any("at least" in message for message in said):
        assert most == FEW_VALUES, text
        assert all(share <= 100 * dead for share in shares), text
    else:
        assert len(shares) == (dead > 0.5) or most == FEW_VALUES, text
        assert all(abs(share - 100 * dead) <= 0.5 + 1e-9 for share in shares), text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20 * FUZZ))
def test_schedules_out_of_reach_are_those_that_the_compiled_weights_show(seed):
    """A ramp that is below 1 at the last step, or a switch whose two steps are never on both sides."""
    draw = random.Random(seed)
    steps = draw.choice([10, 40])
    start, end = sorted(draw.sample(range(-5, 60), 2))
    ramp, switch = (
        f"3 - ramp(step, start={start}, end={end})",
        f"1 if step {draw.choice(['<', '<=', '>', '>='])} {end} else 2",
    )
    text = (
        "rewardspec: 1\ncomponents:\n"
        f'  a: {{values: [0, 1], weight: "{ramp}"}}\n  b: {{values: [0, 1], weight: "{switch}"}}\nadvantage: dr_grpo\n'
    )
    spec = rewardspec.loads(text)
    fn = rewardspec.compile(spec)
    seen = [fn({"a": [0, 1], "b": [0, 1]}, groups=2, step=step, total_steps=steps).weights for step in range(steps + 1)]
    found = [d.message for d in findings(spec, Run(total_steps=steps)).warnings if d.code == "schedule-out-of-reach"]
    assert any("ramp" in message for message in found) == (float(seen[-1]["a"]) > 2), text
    never_moves = any(d.code == "schedule-never-moves" and "`b`" in d.message for d in findings(spec).warnings)
    assert (any("`step`" in m for m in found) or never_moves) == (len({float(w["b"]) for w in seen}) == 1), text


ABOVE = [
    "a",
    "a - mean(a)",
    "a - mean(b)",
    "a - max(a)",
    "b - 0.5",
    "a * b",
    "a - min(a)",
    "center(a)",
    "a + b - mean(a)",
]
BELOW = [
    "std(a) + 1e-9",
    "max(std(a), 1e-6)",
    "sqrt(var(a)) + 1e-8",
    "std(a) + eps",
    "std(b) + 0.25",
    "std(a + b) + 1e-6",
]


@pytest.mark.slow
@pytest.mark.parametrize(("above", "below"), list(product(ABOVE, BELOW)))
def test_divisor_is_tiny_where_a_group_shows_it(above, below):
    text = (
        "rewardspec: 1\ncomponents: {a: {values: [0, 0.5, 1]}, b: {values: [0, 1]}}\n"
        f"advantage: ({above}) / ({below})\nnumerics: {{eps: 1e-5}}\n"
    )
    spec = rewardspec.loads(text)
    said = any(d.code == "tiny-divisor" for d in findings(spec).warnings)
    groups = list(product(product([0, 0.5, 1], [0, 1]), repeat=3))
    columns = {"a": [a for g in groups for a, _ in g], "b": [b for g in groups for _, b in g]}
    assert said == bool((rewardspec.compile(spec)(columns, groups=3).advantages.abs() >= 100).any())


@pytest.mark.slow
@pytest.mark.parametrize("eps", [0, 1e-6, 1e-3, 0.3, 0.4, 0.6, 1])
@pytest.mark.parametrize("scheme", ["grpo", "decoupled", "gdpo", "rloo"])
def test_eps_outweighs_a_spread_where_the_least_is_below_it(scheme, eps):
    spec = rewardspec.loads(
        "rewardspec: 1\ncomponents: {a: {values: [0, 0.5]}, b: {values: [0, 1]}}\n"
        f"advantage: {scheme}\nnumerics: {{eps: {eps}}}\n"
    )
    least = 0.5 / 3**0.5  # one of three differs by one half, in `a` or in the sum
    normalises = scheme != "rloo"
    assert any(d.code == "eps-outweighs-spread" for d in findings(spec).warnings) == (normalises and least < eps)


WHOLE = [
    "max(b, where=a)",
    "center(b) - max(b, where=a)",
    "a / b",
    "a / std(b)",
    "a / (std(b) + eps)",
    "a * 2 ** (1 / sum(a))",
]
WHOLE += [
    "a / std(b) if std(b) > 0 else 0",
    "coalesce(max(b, where=a), 0)",
    "zscore(b, where=a)",
    "mean(b, where=b > 5)",
]
WHOLE += ["center(a) ** 0.5", "minmax(a) - loo(b)", "quantile(b, 0.5, where=a) if any(a) else 0", "1 / sum(a)"]


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["", "keep: any(a)\n"])
@pytest.mark.parametrize("advantage", WHOLE)
def test_advantage_is_undefined_where_the_compiled_function_raises(advantage, keep):
    text = (
        "rewardspec: 1\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1]}}\n"
        f"{keep}advantage: {advantage if 'zscore' in advantage else f'({advantage}) + a'}\n"
    )
    spec = rewardspec.loads(text)
    fn, raised = rewardspec.compile(spec), False
    for size in (2, 3):
        groups = list(product(product([0, 1], repeat=2), repeat=size))
        columns = {"a": [a for g in groups for a, _ in g], "b": [b for g in groups for _, b in g]}
        try:
            fn(columns, groups=size)
        except fn.RolloutError:
            raised = True
    assert any(d.code == "advantage-undefined" for d in findings(spec).warnings) == raised


LENGTHS = ["min(tokens / 4000, 1)", "tokens <= 4000", "ramp(tokens, 3000, 4000)", "ramp(tokens, 100, 104)", "-tokens"]
LENGTHS += ["floor(tokens / 500)", "overlong(tokens, 8192, 4096)", "1 / (1 + tokens)", "round(tokens / 1000) / 1000"]


@pytest.mark.slow
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("scheme", ["grpo", "gdpo", "dr_grpo", "center(length) / max(std(length), 0.1)"])
def test_one_unit_decides_where_two_lengths_next_to_each_other_show_it(length, scheme):
    text = (
        "rewardspec: 1\nsignals: {tokens: {range: [0, .inf]}}\n"
        f'components: {{length: "{length}"}}\nadvantage: {scheme}\n'
    )
    spec = rewardspec.loads(text)
    (said,) = [d.message for d in findings(spec).warnings if d.code == "one-unit-decides"] or [None]
    step = rewardspec.compile(rewardspec.loads(text.replace("gdpo", "decoupled")))
    if said is not None:
        a, b = map(float, re.match(r"(\S+) and (\S+) `tokens`", said).groups())
        assert b == a + 1
        got = step({"tokens": [a, b]}, groups=2).advantages
        shown = [float(x) for x in re.search("get (.+) and (.+)$", said).groups()]
        np.testing.assert_allclose(got.numpy(), shown, rtol=5e-3)
        assert abs(got[0] - got[1]) >= 1
    else:
        tokens = np.repeat(np.arange(9000.0), 2)[1:-1]
        out = step({"tokens": tokens}, groups=2)
        apart, worth = (np.ptp(x.numpy().reshape(-1, 2), axis=1) for x in (out.advantages, out.rewards["length"]))
        width = np.ptp(out.rewards["length"].numpy())
        assert not ((apart >= 1) & (worth > 1e-5 * width) & (worth <= 0.005 * width)).any(), text


SUBSETS = [
    "b == max(b)",
    "rank(b) >= group_size",
    "rank(b) > 2",
    "rank(-b) == group_size",
    "a",
    "b > mean(b)",
    "a < min(a)",
]
SUBSETS += ["rank(b) > group_size - 1", "b >= quantile(b, 0.9)", "sum(a) == 1 and a", "b == min(b) or b == max(b)"]


@pytest.mark.slow
@pytest.mark.parametrize("subset", SUBSETS)
def test_spread_is_zero_where_it_is_said_to_be(subset):
    text = (
        "rewardspec: 1\nsignals: {b: {range: [0, 1]}}\ncomponents: {a: {values: [0, 1]}}\n"
        f"advantage: zscore(b, where={subset})\n"
    )
    spec = rewardspec.loads(text)
    said = any(d.code == "spread-always-zero" for d in findings(spec).warnings)
    rng = np.random.default_rng(0)
    alive = False
    for size in range(2, 25):
        b = np.where(rng.random((40, size)) < 0.5, rng.integers(0, 4, (40, size)) / 4, rng.random((40, size)))
        columns = {"a": rng.integers(0, 2, 40 * size), "b": b.reshape(-1).astype(np.float32)}
        alive = alive or bool(rewardspec.compile(spec)(columns, groups=size).advantages.any())
    assert said != alive, text


ALONE = ["grpo", "dr_grpo", "rloo", "gdpo", "batch_grpo", "reinforce_baseline", "minmax(a)", "total", "whiten(total)"]
ALONE += ["a - 1/2", "a - mean(a, over=batch)", "center(a) * 3", "a - max(a)", "a - mean(b)", "rank(a) - 1"]


@pytest.mark.parametrize("advantage", ALONE)
def test_group_of_one_has_no_advantage_where_it_is_said_to_have_none(advantage):
    spec = rewardspec.loads(
        "rewardspec: 1\ncomponents: {a: {values: [0, 1]}, b: {range: [-2, 2], weight: 0.5}}\n"
        f"advantage: {advantage}\n"
    )
    said = any(d.code == "group-of-one" for d in findings(spec, Run(sizes=[1])).warnings)
    rng = np.random.default_rng(0)
    columns = {"a": rng.integers(0, 2, 50), "b": rng.uniform(-2, 2, 50)}
    assert said != bool(rewardspec.compile(spec)(columns, groups=1).advantages.any())


PIECES = [
    "center(a)",
    "zscore(b)",
    "b",
    "coalesce(b, 0)",
    "min(b)",
    "a * b",
    "coalesce(max(b, where=a), 0)",
    "zscore(a + b)",
    "grpo",
]
PIECES += ["(1 if b > 0 else -1)", "mean(b) * center(a)", "(center(a) if count(b) > 2 else 0)", "a / (1 + b)"]
KEEPS = ["", "keep: all(present(b))\n", "keep: min(b) > 0\n", "keep: any(a)\n", "keep: sum(b) > 0\n"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60 * FUZZ))
def test_one_missing_value_does_what_is_said(seed):
    """Held against the compiled function, on the group that is shown; and nothing is said where it never happens."""
    draw = random.Random(seed)
    policy, (first, second) = draw.choice(["ignore", "ignore", "zero"]), draw.choices(PIECES, k=2)
    text = (
        f"rewardspec: 1\nsignals: {{b: {{values: [0.5, 1], missing: {policy}}}}}\n"
        "components: {a: {values: [0, 1]}}\n"
        + draw.choice(KEEPS)
        + f"advantage: {first} {draw.choice('+-*')} {second}\n"
    )
    spec, _ = check(Source("spec.yaml", text))
    if spec is None:
        return
    fn = rewardspec.compile(spec)
    said = {d.code: d.message for d in findings(spec).warnings}
    if "missing-silences-group" in said:
        spoilt = shown_values(said["missing-silences-group"])
        assert (fn(spoilt, groups=3).advantages == 0).all(), text
        (at,) = {values.index(None) for values in spoilt.values() if None in values}
        rest = {name: values[:at] + values[at + 1 :] for name, values in spoilt.items()}
        assert fn(rest, groups=2).advantages.any(), text
    if "missing-ends-run" in said:
        spoilt = shown_values(said["missing-ends-run"])
        with pytest.raises(ValueError, match="missing"):
            fn(spoilt, groups=3)
    else:
        rollouts = list(product([0, 1], [0.5, 1]))
        groups = list(product(rollouts, repeat=3))
        fn({"a": [a for g in groups for a, _ in g], "b": [b for g in groups for _, b in g]}, groups=3)  # none missing
        spoilt = [((g[0][0], None), *g[1:]) for g in groups]
        fn({"a": [a for g in spoilt for a, _ in g], "b": [b for g in spoilt for _, b in g]}, groups=3)


TERMS = [
    "a",
    "b",
    "c",
    "min(c)",
    "max(a)",
    "mean(b)",
    "std(c)",
    "rank(c)",
    "group_size",
    "minmax(c)",
    "abs(b)",
    "a * b",
]
TERMS += [
    "sigmoid(c)",
    "c - min(c)",
    "max(a, b)",
    "clip(c, 0, 1)",
    "sum(a)",
    "present(c)",
    "exp(b)",
    "quantile(c, 0.5)",
]


def random_condition(draw, depth=2):
    """A condition over a {0, 1}, b {-1, 0.5, 2} and c [-3, 10], often one that always or never holds."""
    if depth and draw.random() < 0.5:
        operands = [random_condition(draw, depth - 1) for _ in range(2)]
        return draw.choice(["({}) and ({})", "({}) or ({})", "not ({}) or ({})"]).format(*operands)
    limit = draw.choice(["-4", "-3", "-1", "0", "0.5", "1", "2", "3", "11", draw.choice(TERMS)])
    return f"{draw.choice(TERMS)} {draw.choice(['<', '<=', '>', '>=', '==', '!='])} {limit}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_what_never_or_always_holds_does_so_in_every_group_that_is_drawn(seed):
    """`gate-never-opens`, `gate-always-open`, `keep-never-holds` and `outcome-decided` claim it of all groups."""
    draw = random.Random(seed)
    condition = random_condition(draw)
    head = "rewardspec: 1\nsignals: {a: {values: [0, 1]}, b: {values: [-1, 0.5, 2]}, c: {range: [-3, 10]}}\n"
    text = head + "components: {one: a, x: a}\nadvantage: grpo\n"
    gated = text.replace("x: a", f"x: {{expr: a, when: '{condition}'}}")
    held = rewardspec.loads(text.replace("x: a", f"x: '1 if {condition} else 0'"))
    columns = {
        "a": [draw.choice([0.0, 1.0]) for _ in range(600)],
        "b": [draw.choice([-1, 0.5, 2.0]) for _ in range(600)],
        "c": [draw.choice([-3, 0, 1, 10, draw.uniform(-3, 10)]) for _ in range(600)],
    }
    groups = sorted(draw.choice(range(150)) for _ in range(600))
    x = rewardspec.compile(held)({n: np.array(v) for n, v in columns.items()}, groups).rewards["x"]
    said = {d.code: d.message for d in diagnosed(gated, "")}
    for key in ("keep", "outcome"):
        said |= {d.code: d.message for d in diagnosed(f"{text}{key}: {condition}\n", "")}
    if said.keys() & {"gate-never-opens", "keep-never-holds"} or "no rollout" in said.get("outcome-decided", ""):
        assert not x.any(), condition
    if "gate-always-open" in said or "every rollout" in said.get("outcome-decided", ""):
        assert x.all(), condition


def shown_values(message):
    """The columns of a group as a message shows them: `(a 1, b -), (a 0, b 0.5) get 0, 0`."""
    columns = {}
    for values in re.findall(r"\(([^)]* [^)]*)\)", message.partition(" get ")[0]):
        for name, value in (pair.split(" ") for pair in values.split(", ")):
            columns.setdefault(name, []).append(None if value == "-" else float(value))
    return columns


def exists(parts, scheme, code):
    """Whether some group of two or three rollouts is as a finding says."""
    rollouts = list(product(*(values for _, values, *_ in parts)))
    for size in (2, 3):
        for members in product(rollouts, repeat=size):
            columns = {name: np.array([m[i] for m in members], dtype=float) for i, (name, *_) in enumerate(parts)}
            rewards = rewards_of(parts, columns)
            weights = {name: weight for name, _, _, weight, _ in parts}
            a = ref.WITHOUT_BATCH_STEP[scheme](rewards, weights, ["p"] * size, eps=0.0)
            best = max(rewards_of(parts[:1], {parts[0][0]: np.array(parts[0][1], dtype=float)})[parts[0][0]])
            right = rewards[parts[0][0]] == best
            if code == "phantom-gradient" and not right.any() and np.ptp(a) > 1e-9:
                return True
            if (
                code == "wrong-above-right"
                and right.any()
                and not right.all()
                and a[right].min() < a[~right].max() - 1e-9
            ):
                return True
    return False


HELPED = [
    "tokens <= 4000",
    "tokens / 4000 - 1",
    "0.5 if tokens < 9 else -2",
]


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["{values: [0, 1]}", "{values: [-1, 1]}", "{values: [0, 1], scale: [-2, 3]}"])
@pytest.mark.parametrize("length", HELPED)
def test_what_a_help_says_to_add_is_a_spec_that_checks(length, outcome):
    text = (
        "rewardspec: 1\nsignals: {tokens: {range: [0, .inf]}}\n"
        f'components:\n  correct: {outcome}\n  length: {{expr: "{length}"}}\nadvantage: dr_grpo\n'
    )
    helps = {d.code: d.help for d in findings(rewardspec.loads(text)).warnings}
    added = "".join(f", {key}" for key in re.findall("`((?:when|otherwise): [^`]+)`", helps["length-without-success"]))
    assert "when: correct" in added
    gated = rewardspec.loads(text.replace(f'"{length}"', f'"{length}"{added}'))
    assert not {d.code for d in findings(gated).warnings} & {
        "length-without-success",
        "phantom-gradient",
        "gate-always-open",
    }
    (keep,) = re.findall("`(keep: [^`]+)`", helps["phantom-gradient"])
    assert "phantom-gradient" not in {d.code for d in findings(rewardspec.loads(text + keep + "\n")).warnings}


@pytest.mark.parametrize("penalty", ["overlong(tokens, 20480, 4096)", "-tokens", "min(0, 1 - tokens / 4000)"])
@pytest.mark.parametrize("weight", ["1", "0.1"])
def test_a_penalty_is_not_paid(penalty, weight):
    for expr, sign in ((penalty, ""), (f"-({penalty})", "-")):
        text = (
            "rewardspec: 1\nsignals: {tokens: {range: [0, .inf]}}\ncomponents:\n  correct: {values: [0, 1]}\n"
            f'  length: {{expr: "{expr}", weight: {sign}{weight}}}\nadvantage: dr_grpo\n'
        )
        codes = {d.code for d in findings(rewardspec.loads(text)).warnings}
        assert not codes & {"length-without-success", "phantom-gradient", "ungated-sibling"}, text


# Published specs

DESERVED = {  # each of these is what the paper says of the set-up, too
    **{
        f"gdpo/{code}": {"phantom-gradient", "ungated-sibling", "wrong-above-right"}
        for code in ("code", "code_decoupled", "code_dr_grpo", "code_grpo", "code_filtered")
    },
    "papo/papo_dapo": {
        "wrong-above-right"
    },  # `verify` refutes this guarantee of the spec, too: the penalty is as large
    "gdpo/math": {"length-without-success", "phantom-gradient"},
    "gdpo/math_filtered": {"length-without-success", "phantom-gradient"},
    "toolrl/coarse": {"phantom-gradient"},
    "gdpo/math_decoupled": {"length-without-success", "phantom-gradient"},
    "gdpo/math_dr_grpo": {"length-without-success", "phantom-gradient"},
    "gdpo/math_grpo": {"length-without-success", "phantom-gradient", "sum-merges-groups"},
    "gdpo/math_conditioned_grpo": {"sum-merges-groups"},
    "gdpo/tool_calling": {"easy-above-hard"},
    "gdpo/tool_calling_decoupled": {"easy-above-hard"},
    "toolrl/length": {"one-unit-decides"},
    "toolrl/length_dynamic": {"one-unit-decides"},
    "toolrl/two_stage": {"abrupt-schedule"},
}


@pytest.mark.slow
def test_findings_of_published_specs_are_deserved():
    found = {}
    for path in sorted(SPECS.glob("*/*.yaml")):
        if path.parent.name != "dialects" and (said := findings(rewardspec.load(path)).warnings):
            found[path.relative_to(SPECS).with_suffix("").as_posix()] = {d.code for d in said}
    assert found == DESERVED


@pytest.mark.slow
def test_pairs_of_rewards_that_are_looked_at_are_counted():
    """Each of 64 rewards weighs more than the one before, and the sum keeps that order: none is found in any pair."""
    components = "".join(f"  c{i}: {{values: [0, 1], weight: 0.{i + 10}}}\n" for i in range(64))
    spec = rewardspec.loads(f"rewardspec: 1\ncomponents:\n{components}advantage: dr_grpo\n")
    facts = Facts(spec)
    assert not list(registered()["easy-above-hard"].look(facts))
    (reason,) = [reason for reason, codes in facts.unchecked.items() if "easy-above-hard" in codes]
    looked_at, of = map(int, re.match(r"(\d+) of (\d+) pairs of rewards", reason).groups())
    assert of == 64 * 63 // 2
    assert 0 < looked_at < 50


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["", ", when: correct >= 1"])
@pytest.mark.parametrize("scheme", ["grpo", "gdpo"])
def test_work_on_the_largest_spec_is_bounded(scheme, gate):
    rest = "".join(f"  c{i}: {{values: [0, 1]{gate}}}\n" for i in range(63))
    spec = rewardspec.loads(f"rewardspec: 1\ncomponents:\n  correct: {{values: [0, 1]}}\n{rest}advantage: {scheme}\n")
    run = Run({"correct": Fraction(1, 20)}, [8, 64])
    states, _ = Facts(spec, run).question.states()
    assert len(states) <= MOST_TRIED
    findings(spec, run)  # ends, within what a test may take


# What people and programs see


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("rewardspec: 1\ncomponents: {solved: {values: [0, 1], weight: 3}}\nadvantage: grpo\n")
    return path


@pytest.mark.slow
def test_warnings_do_not_fail_a_check_unless_asked_to(spec):
    done = run("check", spec)
    assert done.returncode == 0
    assert "warning[weight-without-effect]" in done.stdout
    assert "1 warning" in done.stdout
    for arguments in (["--strict"], ["--error", "weight-without-effect"]):
        done = run("check", spec, *arguments)
        assert done.returncode == 1
        assert "error[weight-without-effect]" in done.stdout
    assert run("check", spec, "--error", "zero-weight").returncode == 0
    spec.write_text(spec.read_text() + "allow: {weight-without-affect: known}\n")
    assert run("check", spec, "--error", "unknown-finding").returncode == 1
    done = run("check", spec, "--error", "zero-wait")
    assert done.returncode == 2
    assert "unknown finding 'zero-wait'" in done.stderr


@pytest.mark.slow
def test_rates_and_sizes_are_told_to_a_check(spec):
    done = run("check", spec, "--p", "solved=0.05", "-g", "8,16")
    assert "66% of groups of 8 are dead at solved=0.05" in done.stdout  # 0.95^8 + 0.05^8
    assert "groups of 16" not in done.stdout  # 44%
    assert "in groups of one" in run("check", spec, "-g", "1").stdout
    spec.write_text(
        "rewardspec: 1\ncomponents: {a: {values: [0, 1], weight: 'ramp(step, end=90)'}, b: {values: [0, 1]}}\n"
        "advantage: dr_grpo\n"
    )
    assert "it is 0.667 at the last step" in run("check", spec, "--total-steps", "60").stdout
    assert "[schedule-out-of-reach]" not in run("check", spec).stdout
    spec.write_text("rewardspec: 1\ncomponents: {solved: {values: [0, 1]}}\nadvantage: grpo\n")
    for arguments, message in (
        (["--p", "solved=0.05"], "add -g 8"),
        (["--p", "solved=2", "-g", "8"], "from 0 to 1"),
        (["--p", "solid=0.5", "-g", "8"], "did you mean `solved`?"),
        (["-g", "0"], "group sizes must be from 1 to 64"),
    ):
        done = run("check", spec, *arguments)
        assert (done.returncode, message in done.stderr) == (2, True)


@pytest.mark.slow
def test_formats_for_other_programs(spec):
    (found,) = json.loads(run("check", spec, "--format", "json").stdout)
    assert (found["code"], found["severity"], found["line"]) == ("weight-without-effect", "warning", 2)
    sarif = json.loads(run("check", spec, "--format", "sarif").stdout)
    (result,) = sarif["runs"][0]["results"]
    assert result["ruleId"] == "weight-without-effect"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 2
    github = run("check", spec, "--format", "github").stdout
    assert github.startswith(f"::warning file={spec},line=2,col=")
    assert "title=weight-without-effect::" in github


GATED = "rewardspec: 1\ncomponents:\n  correct: {values: [0, 1]}\n  length: {values: [0, 1], when: correct >= 2}\n"


@pytest.fixture
def oddly_named(tmp_path, monkeypatch):
    """A spec with an error that has a label, in a file whose name formats have to escape."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "spécs, 100%" / "a:b c.yaml"
    path.parent.mkdir()
    path.write_text(GATED + "advantage: grpo\n")
    return path.relative_to(tmp_path)


@pytest.mark.slow
def test_json_has_labels_with_their_places(oddly_named):
    (found,) = json.loads(run("check", oddly_named, "--format", "json").stdout)
    assert found["note"] == "never true"
    (label,) = found["labels"]
    assert label["message"] == "`correct` is at most 1"
    assert (label["file"], label["line"], label["column"], label["end_column"]) == (str(oddly_named), 3, 21, 27)


@pytest.mark.slow
@pytest.mark.parametrize("absolute", [False, True])
def test_sarif_has_places_and_pages(oddly_named, absolute):
    name = oddly_named.resolve() if absolute else oddly_named
    (ran,) = json.loads(run("check", name, "--format", "sarif").stdout)["runs"]
    (result,), (rule,) = ran["results"], ran["tool"]["driver"]["rules"]
    uri = "sp%C3%A9cs%2C%20100%25/a%3Ab%20c.yaml"
    places = [*result["locations"], *result["relatedLocations"]]
    assert [p["physicalLocation"]["artifactLocation"]["uri"] for p in places] == [uri, uri]
    assert result["relatedLocations"][0]["message"]["text"] == "`correct` is at most 1"
    assert result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 3
    assert (rule["id"], rule["shortDescription"]["text"]) == ("gate-never-opens", "A gate that never opens.")
    assert rule["fullDescription"]["text"].startswith("`when:` is true for no value")
    assert rule["help"]["text"] == rule["help"]["markdown"] == page("gate-never-opens")
    assert "helpUri" not in rule
    assert result["ruleIndex"] == 0


@pytest.mark.slow
def test_sarif_of_a_code_without_a_page(oddly_named):
    oddly_named.write_text("rewardspec: 1\ncomponents: {a: {}}\nadvantage: grpo\n")
    (ran,) = json.loads(run("check", oddly_named, "--format", "sarif").stdout)["runs"]
    assert ran["tool"]["driver"]["rules"] == [{"id": "no-domain", "shortDescription": {"text": "no domain"}}]
    assert "relatedLocations" not in ran["results"][0]


@pytest.mark.slow
def test_github_escapes_what_ends_a_property(oddly_named):
    line = run("check", oddly_named, "--format", "github").stdout.rstrip("\n")
    properties, message = re.fullmatch("::error ([^:]+)::(.+)", line).groups()
    assert properties == "file=spécs%2C 100%25/a%3Ab c.yaml,line=4,col=34,title=gate-never-opens"
    assert message.startswith("the gate of `length` never opens (")
    assert message.endswith("%0Aspécs, 100%25/a:b c.yaml:3:21: `correct` is at most 1")


@pytest.mark.slow
def test_explain_of_a_code():
    done = run("explain", "gate-never-opens")
    assert done.returncode == 0
    assert "A gate that never opens." in done.stdout
    assert "A z-score of a z-score" in run("explain", "normalised-twice").stdout
    assert "cannot be allowed" in run("explain", "unknown-finding").stdout
    assert "It is an error" in run("explain", "gate-never-opens").stdout
    done = run("explain", "phantom-gradiant")
    assert (done.returncode, "did you mean `phantom-gradient`?" in done.stderr) == (2, True)
    assert run("explain", "no-such-code").returncode == 2
    assert "cannot read no.yaml" in run("explain", "no.yaml").stderr
    assert "phantom-gradient" in run("list").stdout


@pytest.mark.slow
def test_what_was_not_checked_is_a_line_and_a_note(spec):
    spec.write_text(
        "rewardspec: 1\ncomponents: {code_reward: {range: [0, 1]}, style: {values: [0, 1]}}\nadvantage: grpo\n"
    )
    message = "phantom-gradient, wrong-above-right (the spec has no `outcome`; add one: `outcome: "
    done = run("check", spec, "--strict")
    assert done.returncode == 0  # a note is no finding
    (line,) = [line for line in done.stdout.split("\n") if "not checked" in line]
    assert line.startswith(f"{spec}: not checked: {message}")
    (note,) = json.loads(run("check", spec, "--format", "json").stdout)
    assert (note["code"], note["severity"]) == ("not-checked", "note")
    assert note["message"].startswith(message)
    (result,) = json.loads(run("check", spec, "--format", "sarif").stdout)["runs"][0]["results"]
    assert result["level"] == "note"
    assert run("check", spec, "--format", "github").stdout.startswith("::notice ")
    spec.write_text(spec.read_text() + "outcome: code_reward >= 1\n")
    said = run("check", spec).stdout
    assert "not checked" not in said
    assert "groups in which `code_reward >= 1` is never true can be live" in said


@pytest.mark.parametrize(("p", "q", "size"), [(0.05, 0.9, 8), (0.03, 0.98, 4)])
def test_factor_of_the_batch_step_is_that_of_a_large_batch(p, q, size):
    text = "components: {correct: {values: [0, 1]}, form: {values: [0, 1], weight: 0.5}}\nadvantage: "
    found = diagnosed(f"rewardspec: 1\n{text}gdpo\n", f"--p correct={p},form={q} -g {size}")
    (said,) = [d.message for d in found if d.code == "batch-step-amplifies"]
    fn = rewardspec.compile(rewardspec.loads(f"rewardspec: 1\n{text}decoupled\n"))
    generator = torch.Generator().manual_seed(0)
    factors = []
    for rates in ((p, q), (0.5, 0.5)):
        drawn = [(torch.rand(200_000 * size, generator=generator) < rate).float() for rate in rates]
        factors.append(1 / fn({"correct": drawn[0], "form": drawn[1]}, size).advantages.std().item())
    told = [float(x) for x in re.findall(r"by ([\d.]+) at", said)]
    assert told == pytest.approx(factors, rel=0.05)  # two digits are told


def test_factor_of_the_batch_step_is_of_the_values_that_are_there():
    text = "rewardspec: 1\ncomponents: {correct: {values: [0, 1]%s}}\nadvantage: gdpo\n"
    found = [diagnosed(text % more, "--p correct=0.05 -g 8") for more in ("", ", missing: ignore")]
    said = [[d.message for d in one if d.code == "batch-step-amplifies"] for one in found]
    assert len(said[0]) == 1 and said[1] == said[0]
