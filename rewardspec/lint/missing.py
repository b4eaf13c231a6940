"""Missing values: what one of them does to a group, and whether they are treated alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rewardspec.ir.checks import find_checks
from rewardspec.ir.graph import walk
from rewardspec.lint.finding import OF_BATCH, Facts, finding
from rewardspec.lower.lower import lower
from rewardspec.spec import deep_stack
from rewardspec.syntax.expression import parse_expression
from rewardspec.text.diagnostics import Diagnostic, Label, Report
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Source, Span

MOST_TRIED_KEEPS = 4  # conditions that a help may propose, tried one by one


@finding("missing-silences-group")
def missing_silences_group(facts: Facts) -> Iterator[Diagnostic]:
    """One missing value takes the advantage of a whole group.

    A value may be missing, and where it is for one rollout, all of its group have advantage 0, though the others
    alone differ and would be learnt from. A judge that times out once in a hundred calls then costs one in seven
    groups of 16. ms-swift#8123 and trl#5773 are about one None that spoils a group or a batch.

    ```yaml
    components:
      correct: {values: [0, 1]}
      judge: {range: [0, 1], missing: ignore}
    keep: all(present(judge))
    advantage: grpo
    ```

    Leave it to the reductions: what is missing takes no part in them. Where the group has to be complete,
    `allow: {missing-silences-group: why}`.
    """
    for name, group, spoilt in _spoilt(facts, "missing-silences-group"):
        before, after = facts.advantages(group), facts.advantages(spoilt)
        if before is None or after is None or None in before or any(a is None or a != 0 for a in after):
            continue
        members, columns, moment = spoilt
        at = next(i for i, row in enumerate(members) if row != group[0][i])
        rest = facts.advantages((members[:at] + members[at + 1 :], columns, moment))
        if rest is not None and None not in rest and any(before) and len(set(rest)) > 1:
            kept = facts.question.program.keep
            is_dropped = kept is not None and (facts.values(kept, spoilt) or [1])[0] != 1
            yield facts.warn(
                "missing-silences-group",
                f"one missing `{name}` silences its group: {_told(facts, group, spoilt, before, after)}",
                _place(facts, name),
                labels=(_culprit(facts, is_dropped),),
                help="let it take no part, as in the reductions and the ready-made schemes, or say why it has to: "
                "`allow: {missing-silences-group: why}`",
            )
            return


@finding("missing-ends-run")
def missing_ends_run(facts: Facts) -> Iterator[Diagnostic]:
    """One missing value makes the advantage missing, which is an error when it runs.

    The spec lets a value be missing (`missing: ignore`) and then computes with it outside of any reduction. What is
    computed from something missing is missing, and a missing advantage, where something was measured, ends the call:
    training stops at the first rollout for which the judge did not answer. In ms-swift#8123 one None made the
    advantages of a whole batch NaN, in silence; an error is what there is in place of that.

    ```yaml
    components:
      correct: {values: [0, 1]}
      judge: {range: [0, 1], missing: ignore}
    advantage: center(correct) + judge - 1/2
    ```

    Say what stands for it: `coalesce(judge, mean(judge), 0)`; or use what knows (`center(judge)`, `grpo`, `gdpo`).
    """
    for name, group, spoilt in _spoilt(facts, "missing-ends-run"):
        before, after = facts.advantages(group), facts.advantages(spoilt)
        if before is None or after is None or None in before or None not in after:
            continue
        if _measured_without_advantage(facts, spoilt, after):
            yield facts.warn(
                "missing-ends-run",
                f"one missing `{name}` ends the run: {_told(facts, group, spoilt, before, after)}",
                _place(facts, name),
                labels=(_culprit(facts, False),),
                note="allowed here",
                help=f"say what stands for it, `coalesce({name}, mean({name}), 0)`, or use a scheme such as `grpo`",
            )
            return


@finding("advantage-undefined")
def advantage_undefined(facts: Facts) -> Iterator[Diagnostic]:
    """A group, with nothing missing, that has no advantage.

    A reduction of nothing is missing (`max(x, where=correct)` where nobody is right), and what is divided by a spread
    of 0 has no value. That is an error when it runs: training stops at the first such group, and groups in which all
    are wrong, or all are alike, come early. It follows from the formula.

    ```yaml
    components:
      correct: {values: [0, 1]}
      style: {values: [0, 1]}
    advantage: center(style) - max(style, where=correct)
    ```

    Say what such a group has: `coalesce(max(style, where=correct), 0)`, `... if std(style) > 0 else 0`; or leave it
    out: `keep: any(correct)`.
    """
    program = facts.program
    if not program.advantage.domain.missing and not find_checks(program.graph, [program.advantage]):
        return  # the domains prove that there is a value
    if facts.depends_on_batch("advantage-undefined"):
        return
    facts = facts.with_eps if facts.divides_by_eps else facts
    shown = _undefined(facts)
    if shown is not None:
        yield facts.warn(
            "advantage-undefined",
            f"a group can end the run: {_rows(facts, shown[0])} get {_listed(shown[1])}{facts.at_moment(shown[0][2])}",
            facts.advantage_place(),
            help="say what such a group has (`coalesce(x, 0)`, `... if std(x) > 0 else 0`), or leave it out with "
            f"`keep:{_that_leaves_out(facts)}`",
        )


def _undefined(facts: Facts) -> tuple[tuple, list] | None:
    """A small group with nothing missing, and its advantages, of which one is."""
    for group, advantages in facts.each_of_some_groups():
        if any(None in row for row in group[0]) or advantages is None or None not in advantages:
            continue
        if _measured_without_advantage(facts, group, advantages):
            return group, advantages
    return None


def _that_leaves_out(facts: Facts) -> str:
    """A condition for `keep:` under which no small group is undefined; nothing where no usual one does it."""
    if facts.program.keep is not None:
        return ""
    usual = [f"std({name}) > 0" for name in facts.shaped]
    for condition in [*([facts.outcome.any] if facts.outcome else []), *usual[:MOST_TRIED_KEEPS]]:
        source = Source("keep", condition)
        keep = parse_expression(condition, source.span, Report())
        declared = replace(facts.declared, keep=keep)
        with deep_stack():
            program = lower(declared, Report())
        if (
            program is not None
            and _undefined(Facts(replace(facts.spec, declarations=declared, program=program))) is None
        ):
            return f" {condition}"
    return ""


def _measured_without_advantage(facts: Facts, group: tuple, advantages: list) -> bool:
    """Whether something was measured of the first rollout that has no advantage, which ends the call."""
    at = advantages.index(None)
    measured = (facts.shaped_in(component, group) for component in facts.shaped)
    return any(values is not None and values[at] is not None for values in measured)


def _spoilt(facts: Facts, code: str) -> Iterator[tuple[str, tuple, tuple]]:
    """(column, a group of three, the group with one value of the column missing), for groups with none missing."""
    policies = {name: column.missing for name, column in facts.declared.columns.items() if column.missing != "error"}
    nodes = list(facts.question.fine)
    if not policies or facts.depends_on_batch(code):
        return
    if facts.question.step == "shift":
        facts.leave_out(code, OF_BATCH)
        return
    for at, node in enumerate(nodes):
        name = node.attributes[0]
        if name not in policies:
            continue
        left = None if policies[name] == "ignore" else 0
        for members, columns, moment in facts.some_groups[3]:
            for i, row in enumerate(members):
                if all(None not in m for m in members) and row[at] != left:
                    without = (*row[:at], left, *row[at + 1 :])
                    spoilt = (*members[:i], without, *members[i + 1 :])
                    yield name, (members, columns, moment), (spoilt, columns, moment)


def _told(facts: Facts, group: tuple, spoilt: tuple, before: list, after: list) -> str:
    """Both groups on a line: what was measured, and what each rollout gets."""
    when = facts.at_moment(group[2])
    return f"{_rows(facts, group, spoilt)} get {_listed(after)}; with the value, {_listed(before)}{when}"


def _rows(facts: Facts, group: tuple, spoilt: tuple | None = None) -> str:
    """What was measured of each rollout; `-` where that is missing in the other group."""
    rows = []
    for row, other in zip(group[0], (spoilt or group)[0], strict=True):
        shown = []
        for node, value, there in list(zip(facts.question.fine, row, other, strict=True))[:5]:
            symbols = node.domain.symbols
            text = "-" if value != there else symbols[int(value)] if symbols else format_number(value)
            shown.append(f"{node.attributes[0]} {text}")
        rows.append(f"({', '.join(shown)})")
    return ", ".join(rows)


def _listed(advantages: list) -> str:
    return ", ".join("nothing" if a is None else f"{float(a):.3g}" for a in advantages)


def _place(facts: Facts, name: str) -> Span:
    section = "components" if name in facts.declared.components else "signals"
    return facts.place(section, name, "missing")


def _culprit(facts: Facts, is_dropped: bool) -> Label:
    if is_dropped:
        return Label(facts.root_node.get("keep").span, "leaves the group out")
    return Label(facts.advantage_place(), "computed with it")


@finding("policies-disagree")
def policies_disagree(facts: Facts) -> Iterator[Diagnostic]:
    """One component counts a missing value as 0, another leaves it out.

    A rollout for which neither was measured is then normal for one part of its advantage and absent from the other.
    Which of the two is meant is hard to tell from the result. ms-swift#8123 and trl#5773 are about what a None should
    be.

    ```yaml
    components:
      tests: {range: [0, 1], missing: zero}
      judge: {range: [0, 1], missing: ignore}
    advantage: grpo
    ```

    Use one policy (`missing: ignore`), or say why not:
    `allow: {policies-disagree: tests that did not run have failed}`.
    """
    first: dict[str, tuple[str, str]] = {}  # policy: component, column
    for name in facts.declared.components:
        for column in _columns(facts, name):
            policy = facts.declared.columns[column].missing
            if policy != "error":
                first.setdefault(policy, (name, column))
    if len(first) < 2 or first["zero"][1] == first["ignore"][1]:
        return
    (zero, zero_column), (ignore, ignore_column) = first["zero"], first["ignore"]
    yield facts.warn(
        "policies-disagree",
        f"a missing {_said(zero, zero_column)} counts 0, a missing {_said(ignore, ignore_column)} is left out",
        _place(facts, ignore_column),
        labels=(Label(_place(facts, zero_column), "counts 0"),),
        help="use one policy for both, or `allow: {policies-disagree: why}`",
    )


def _columns(facts: Facts, component: str) -> list[str]:
    """The columns whose values a component is made of; those that only gates read are none."""
    if component in facts.declared.columns:
        return [component]
    node = facts.shaped[component]
    while node.op == "if":
        node = node.args[1]
    return [n.attributes[0] for n in walk([node]) if n.op == "column" and n.domain.symbols is None]


def _said(component: str, column: str) -> str:
    return f"`{component}`" if component == column else f"`{column}` (in `{component}`)"
