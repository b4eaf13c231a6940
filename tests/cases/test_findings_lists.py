"""Findings about rollouts with lists: no false claim, held against the compiled function on lists of 0 to 4 items."""

import random
import re
from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from places import FUZZ
from reference.wide import Wide

import rewardspec
from rewardspec.lint import Run, findings
from rewardspec.spec import check
from rewardspec.text.source import Source

SHORT, LONG = 2, 4  # items of a list: of all that the findings try, and of others
MANY = 15 * FUZZ

TOOLS = [
    "called",
    "called",
    "called * correct",
    "sum(called, over=rollout)",
    "coalesce(mean(called, over=rollout), 0)",
    "min(sum(called, over=rollout), 1)",
    "all(called, over=rollout)",
    "all(called, over=rollout) and any(called, over=rollout)",
    "returns(called, gamma=0.5)",
    "returns(called, gamma=0.5) > 0",
    "so_far(called)",
    "coalesce(before(called), 0)",
    "count(position, over=rollout)",
    "count(position, over=rollout) >= 3",
    "center(called, over=rollout)",
    "called - called * called",
    "correct + 0 * position",
]
GATES = [
    None,
    None,
    None,
    "correct >= 1",
    "correct >= 0",
    "position >= 2",
    "position >= 1",
    "any(called, over=rollout)",
]
WEIGHTS = [None, "0.5", "2", "-1"]
SAME_LEVEL = ["grpo", "dr_grpo", "decoupled", "zscore(zscore(total))"]
ANY_LEVEL = ["decoupled", "gdpo", "sum(weights * center(rewards), over=components)", "zscore(correct)"]
ANY_LEVEL += ["zscore(correct) + center(called, by=position)", "correct + sum(called, over=rollout)"]
ANY_LEVEL += ["center(correct) + mean(called, over=rollout)"]
ANY_LEVEL += ["center(correct) + sum(center(called, over=rollout), over=rollout)"]
ANY_LEVEL += ["center(correct) + sum(center(raw_tool, over=rollout), over=rollout)"]
ANY_LEVEL += ["center(correct) + called / (std(called) + 1e-9)"]
ANY_LEVEL += ["center(correct) + zscore(called, where=position == max(position, over=rollout), over=rollout)"]
ANY_LEVEL += ["zscore(correct) + 0.5 * zscore(raw_tool)", "zscore(correct) + zscore(raw_tool, over=rollout)"]
KEEPS = ["", "", "", "keep: any(correct)\n", "keep: mean(correct) > 0\n", "keep: all(any(called, over=rollout))\n"]


def random_spec(draw):
    """The keys of the components by name, the advantage, `keep`, and whether turns are ordered."""
    tool = {"expr": f'"{draw.choice(TOOLS)}"', "weight": draw.choice(WEIGHTS), "when": draw.choice(GATES)}
    if tool["when"] is not None:
        tool["otherwise"] = draw.choice(["0", "ignore"])
        tool["when"] = f'"{tool["when"]}"'
    parts = {"correct": {"values": "[0, 1]", "weight": draw.choice([None, None, "2"])}, "tool": tool}
    if draw.random() < 0.2:
        parts["tool"] = {"values": "[0, 1]", "level": "turn", "scale": draw.choice(["[0, 2]", "[-1, 1]", "[0, 1]"])}
    advantage = draw.choice(SAME_LEVEL + ANY_LEVEL)
    return parts, advantage.replace("raw_tool", "tool"), draw.choice(KEEPS), draw.random() < 0.8


def text_of(parts, advantage, keep, ordered):
    lines = [
        f"  {name}: {{{', '.join(f'{key}: {value}' for key, value in keys.items() if value is not None)}}}\n"
        for name, keys in parts.items()
    ]
    return (
        f"rewardspec: 1\nlists: {{turn: {{{'ordered: true' if ordered else ''}}}}}\n"
        "signals: {called: {values: [0, 1], level: turn}}\ncomponents:\n"
        + "".join(lines)
        + f'{keep}advantage: "{advantage}"\nnumerics: {{eps: 0}}\n'
    )


class Groups:
    """Groups of rollouts (correct, called) with the columns of a call for all of them."""

    def __init__(self, groups):
        self.groups = groups
        self.members = [m for group in groups for m in group]
        self.ids = np.concatenate([[i] * len(group) for i, group in enumerate(groups)])
        self.right = np.array([m[0] for m in self.members]) == 1

    def run(self, text):
        """Of the compiled function: its result, and for each rollout the list of its advantages."""
        fn = rewardspec.compile(rewardspec.loads(text))
        called = [np.array(m[1], dtype=float) for m in self.members]
        columns = {"correct": self.right.astype(float), "called": called, "tool": called}
        used = {name: columns[name] for name in fn.spec.columns}
        lengths = {"turn": np.array([len(m[1]) for m in self.members])}
        more = {"lengths": lengths} if fn.spec.lists and not {"called", "tool"} & {*used} else {}
        out = fn(used, self.ids, **more)
        nested = out.nested() if out.lengths else out.advantages.tolist()
        return out, [v if isinstance(v, list) else [v] for v in nested]

    def raises(self, text):
        """Whether a call raises."""
        try:
            self.run(text)
        except ValueError:
            return True
        return False


ROLLOUTS = [(c, list(called)) for c in (0, 1) for n in range(SHORT + 1) for called in product((0, 1), repeat=n)]
PAIRS = Groups(list(combinations_with_replacement(ROLLOUTS, 2)))
TRIPLES = list(combinations_with_replacement(ROLLOUTS, 3))
ALL = Groups([*PAIRS.groups, *TRIPLES])


def longer(draw, many=120):
    """Random groups with lists of up to `LONG` items."""
    one = lambda: (draw.randint(0, 1), [draw.randint(0, 1) for _ in range(draw.randint(0, LONG))])  # noqa: E731
    return Groups([[one() for _ in range(draw.randint(2, 5))] for _ in range(many)])


def equal(ours, theirs):
    return all(np.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


def same(text, other, message, draw):
    """Whether two specs have the same advantages, on all groups that the message claims it of."""
    groups = [ALL] if "for lists of up to 2 items" in message else [ALL, longer(draw)]
    return all(equal(g.run(text)[1], g.run(other)[1]) for g in groups)


def exists(claim, ids, advantages, right):
    """Whether a group is as `claim` says of its advantages and of which rollouts are right."""
    for i in range(ids[-1] + 1):
        at = np.flatnonzero(ids == i)
        if claim([advantages[j] for j in at], [right[j] for j in at]):
            return True
    return False


def phantom(own, right):
    items = [v for value in own for v in value]
    return not any(right) and len(items) > 1 and np.ptp(items) > 1e-6


def wrong_above(own, right):
    worst = [max(v) for v, r in zip(own, right, strict=True) if r and v]
    best = [min(v) for v, r in zip(own, right, strict=True) if not r and v]
    return bool(worst and best) and min(worst) < max(best) - 1e-6


LONG_WRONG = Groups(
    [[(0, list(one) * n), (1, list(two))] for n in (4, 8, 16) for one in ((0,), (1,)) for two in ((0,), (1,))]
)
TWICE = Groups([[(c, [x]), (c, [x, x])] for c in (0, 1) for x in (0, 1)])


def claim_holds(d, spec, draw):
    parts, advantage, keep, ordered = spec
    text, message = text_of(*spec), d.message
    vary = lambda name, **keys: text_of({**parts, name: parts[name] | keys}, *spec[1:])  # noqa: E731
    name = next((n for n in re.findall("`(.+?)`", message) if n in parts), "tool")
    if d.code == "weight-without-effect":
        return same(text, vary(name, weight=f"2 * ({parts[name]['weight']})"), message, draw)
    if d.code == "scale-without-effect":
        return same(text, vary(name, scale=None), message, draw)
    if d.code in ("component-unread", "component-without-effect", "constant-component"):
        keys = {key: None for key in parts[name]}
        level = "0 * position" if "position" in text.partition("advantage:")[0] or "level: turn" in text else "0"
        zeros = [vary(name, **keys | {"expr": f'"{zero}"'}) for zero in ("0 * position", "0 * correct", level)]
        loads = [zero for zero in zeros if check(Source("spec.yaml", zero))[0] is not None]
        if d.code == "constant-component":
            values = ALL.run(text)[0].rewards[name].numpy()
            return np.ptp(values) < 1e-6
        return any(same(text, zero, message, draw) for zero in loads)
    if d.code == "gate-always-open":
        return not ALL.run(vary("tool", otherwise="ignore"))[0].rewards["tool"].isnan().any()
    if d.code == "discount-without-effect":
        return same(text, text.replace(", gamma=0.5", ""), message, draw)
    if d.code == "group-of-one":
        alone = Groups([[m] for m in ROLLOUTS])
        return not any(abs(v) > 1e-6 for value in alone.run(text)[1] for v in value)
    if d.code == "spread-always-zero":
        (term,) = re.findall(r"zscore\(\w+, (?:where=.*, )?over=rollout\)", advantage)
        return not any(abs(v) > 1e-6 for value in ALL.run(text_of(parts, term, "", ordered))[1] for v in value)
    if d.code == "normalised-twice":
        return same(text, text.replace("zscore(zscore(total))", "zscore(total)"), message, draw)
    out, advantages = ALL.run(text)
    if d.code == "no-baseline":
        return all(v >= -1e-6 for value in advantages for v in value)
    if d.code == "tiny-divisor":
        return any(abs(v) >= 100 for value in advantages for v in value)
    if d.code == "keep-never-holds":
        return not out.kept.any()
    if d.code == "phantom-gradient":
        return exists(phantom, ALL.ids, advantages, ALL.right)
    if d.code == "wrong-above-right":
        long = LONG_WRONG.run(text)[1]
        return exists(wrong_above, ALL.ids, advantages, ALL.right) or exists(
            wrong_above, LONG_WRONG.ids, long, LONG_WRONG.right
        )
    if d.code == "keep-dead-groups":
        kept = [i for i in range(len(ALL.groups)) if out.kept[i] and all(m[0] for m in ALL.groups[i])]
        values = [[v for j in np.flatnonzero(ALL.ids == i) for v in advantages[j]] for i in kept]
        return any(values) and not any(abs(v) > 1e-6 for value in values for v in value)
    if d.code == "more-items-rewarded":
        values = TWICE.run(text)[1]
        pairs = [(one, two) for one, two in zip(values[::2], values[1::2], strict=True)]
        more = [later - one[0] for one, two in pairs for later in two]
        return ordered and min(more) >= -1e-6 and max(more) > 1e-6
    if d.code == "all-of-no-items":
        values = dict(zip(map(str, ALL.members), out.rewards["tool"].tolist(), strict=True))
        return ordered and max(values[str((c, []))] for c in (0, 1)) == max(values.values()) > min(values.values())
    if d.code == "ungated-sibling":
        return "when" not in parts[name] or "correct" not in parts[name]["when"]
    if d.code == "sum-merges-groups":
        own, size, apart = map(int, re.findall(r"(?:leaves|size) (\d+)", message))
        groups = PAIRS if size == 2 else Groups(TRIPLES)
        return [distinct(groups, text_of(parts, a, keep, ordered)) for a in (advantage, "decoupled")] == [own, apart]
    if d.code == "easy-above-hard":
        return shown_is_so(message, text.replace('"gdpo"', '"decoupled"'))  # before the batch's normalisation
    return d.code in ("long-rollouts-outweigh", "baseline-depends-on-stopping", "zero-weight")


def distinct(groups, text):
    values = groups.run(text)[1]
    found = set()
    for i in range(len(groups.groups)):
        rows = [tuple(round(v, 5) + 0.0 for v in values[j]) for j in np.flatnonzero(groups.ids == i)]
        found.add(tuple(sorted(rows)))
    return len(found)


def shown_is_so(message, text):
    """Whether a group of rollouts with one turn each has the advantages that a message shows."""
    group, shown = [], []
    for times, correct, called, value in re.findall(
        r"(?:(\d+) x )?\(correct (\d), tool \[?(\d)\]?\) gets \[?([-.\d]+)\]?", message
    ):
        group += [(int(correct), [int(called)])] * int(times or 1)
        shown += [float(value)] * int(times or 1)
    return bool(group) and np.allclose([v[0] for v in Groups([group]).run(text)[1]], shown, atol=6e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_false_claim_of_lists(seed):
    draw = random.Random(seed)
    seen = Counter()
    for _ in range(MANY):
        spec = random_spec(draw)
        text = text_of(*spec)
        read, _ = check(Source("spec.yaml", text))
        if read is None:
            continue
        seen["read"] += 1
        found = findings(read, Run(sizes=[1])).warnings
        if PAIRS.raises(text):
            assert "advantage-undefined" in {d.code for d in found}, text
            seen["advantage-undefined"] += 1
            continue
        for d in found:
            seen[d.code] += 1
            assert claim_holds(d, spec, draw), f"{d.code}: {d.message}\n{text}"
    assert seen["read"] > MANY / 3
    assert len(seen) > 6, seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(8 * FUZZ), 49, 157])
def test_findings_of_random_specs_with_lists_end(seed):
    """Two lists, ids, state, schedules, gates of items: nothing raises."""
    draft = Wide(seed, kinds=("lists",) if seed % 2 else ("lists", "ids", "state")).spec()
    spec, _ = check(Source("spec.yaml", draft.text))
    if spec is not None:
        findings(spec, Run(sizes=[1, 4], items=1 + seed % 3))


@pytest.mark.parametrize("items", [1, 2])
def test_share_of_dead_groups_is_that_of_all_groups_of_rollouts_with_lists(items):
    """All lengths are equally likely, and items independent."""
    rates = {"correct": Fraction(1, 20), "called": Fraction(1, 10)}
    text = text_of({"correct": {"values": "[0, 1]"}, "tool": {"expr": "called"}}, "decoupled", "", True)
    rollouts = [(c, list(called)) for c in (0, 1) for n in range(items + 1) for called in product((0, 1), repeat=n)]
    groups = Groups(list(product(rollouts, repeat=2)))
    odds = {one: float(rates["correct" if one == "c" else "called"]) for one in ("c", "x")}
    chance = lambda one, value: odds[one] if value else 1 - odds[one]  # noqa: E731
    mass = [chance("c", c) * np.prod([chance("x", x) for x in called]) / (items + 1) for c, called in groups.members]
    values, dead = groups.run(text)[1], 0.0
    for i in range(len(groups.groups)):
        at = np.flatnonzero(groups.ids == i)
        if not any(abs(v) > 1e-6 for j in at for v in values[j]):
            dead += mass[at[0]] * mass[at[1]]
    (found,) = [d for d in findings(rewardspec.loads(text), Run(rates, [2], items=items)).warnings if "dead" in d.code]
    share = int(re.match(r"(\d+)% of groups of 2 are dead", found.message)[1])
    assert share == pytest.approx(100 * dead, abs=0.5)
    assert found.message.endswith(f", for lists of up to {items} item{'s' * (items > 1)}")
