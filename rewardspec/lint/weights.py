"""Scales, weights and schedules: knobs that do nothing, or more than was meant."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from math import ceil, inf, prod

from rewardspec.groups.batch import over_batch
from rewardspec.groups.parts import columns_of
from rewardspec.groups.points import points_of, users_of
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, is_elementwise, walk
from rewardspec.ir.patterns import match_zscore
from rewardspec.language.declarations import ComponentDeclaration
from rewardspec.lint.divisors import SMALL, eps_outweighs_spread
from rewardspec.lint.finding import MOST_ROLLOUTS, OF_BATCH, Facts, finding
from rewardspec.lower.lower import Lowering, Program, lower
from rewardspec.lower.values import Skip
from rewardspec.ops.domain import Level
from rewardspec.ops.exact import Inexact
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.spec import Spec, deep_stack
from rewardspec.syntax.tree import Call, Expr, If, Number, Operation
from rewardspec.text.diagnostics import Diagnostic, Label, Report
from rewardspec.text.numbers import format_number

MOST_LOWERED = 6_000  # nodes, over all components whose weight or scale is changed to see what it does
GRID = 200  # pieces of a run in which jumps are looked for
SHORTEST = Fraction(1, 1000)  # of a step
FEW_STEPS = 20  # in so short a run ramps jump, too


@finding("zero-weight")
def zero_weight(facts: Facts) -> Iterator[Diagnostic]:
    """A component with weight 0.

    It is measured, shaped and logged, and has no part in the advantage. Where that is meant (a metric to watch), it is
    a signal. It follows from the formula of the weighted sum.

    ```yaml
    components:
      correct: {values: [0, 1]}
      style: {range: [0, 1], weight: 0}
    advantage: grpo
    ```

    Declare it under `signals:`, or leave it out, or weigh it (`weight: 0.1`).
    """
    for component in facts.program.components:
        if component.weight.constant == 0:
            yield facts.warn(
                "zero-weight",
                f"`{component.name}` has weight 0: nothing depends on it",
                facts.component_place(component.name, "weight"),
                help="declare it under `signals:`, or leave it out",
            )


def unread(facts: Facts, name: str) -> bool:
    """Whether nothing that decides an advantage reads a column of a component."""
    program = facts.program
    columns = columns_of([facts.shaped[name]])
    decides = [n for n in (program.advantage, program.keep, program.copies) if n is not None]
    stated = [*decides, *program.guarantees.values(), *program.labels.values()]
    stated += [] if program.outcome is None else [program.outcome.holds, program.outcome.fails]
    return bool(columns) and not columns & columns_of(stated) and bool(columns_of([program.advantage]))


@finding("component-unread")
def component_unread(facts: Facts) -> Iterator[Diagnostic]:
    """A component that the advantage does not read.

    It is declared among what is rewarded, measured and logged; but `advantage` names other components and not this
    one, so nothing is learnt from it. A reward that was added to the list and not to the formula looks like this, and
    so does a weight dropped on the way (NeMo-RL#3852).

    ```yaml
    components:
      correct: {values: [0, 1]}
      style: {range: [0, 1]}
    advantage: zscore(correct)
    ```

    Add it (`grpo` and `gdpo` take all components), or declare it under `signals:` if it is only to be watched.
    """
    for component in facts.program.components:
        if component.weight.constant != 0 and unread(facts, component.name):
            yield facts.warn(
                "component-unread",
                f"the advantage does not depend on `{component.name}`",
                facts.component_place(component.name),
                labels=(Label(facts.advantage_place(), "reads other components alone"),),
                help="add it to the advantage, or declare it under `signals:`",
            )


@finding("constant-component")
def constant_component(facts: Facts) -> Iterator[Diagnostic]:
    """A component that is the same for all rollouts of a group.

    Advantages compare the rollouts of one prompt. What is one value for all of them (a constant, a column of the group
    or the batch) cancels, whatever its weight. TTRV#4 is an entropy penalty that was the same for the whole group.

    ```yaml
    signals: {difficulty: {range: [0, 1], level: group}}
    components:
      correct: {values: [0, 1]}
      bonus: difficulty                              # the same for every rollout of the prompt
    advantage: dr_grpo
    ```

    Make it a weight (`correct: {values: [0, 1], weight: difficulty}`), or let it depend on the rollout
    (`bonus: difficulty * correct`). Under `grpo` a weight of the whole group cancels, too.
    """
    for name, node in facts.shaped.items():
        value = node.domain.constant if node.domain.constant is not None else _only_value(node)
        if node.op == "spread" or value is not None or node.op == "const":
            what = f"always {format_number(value)}" if value is not None else "the same for all rollouts of a group"
            yield facts.warn(
                "constant-component",
                f"`{name}` is {what}, and advantages compare the rollouts of a group",
                facts.component_place(name),
                help="let it depend on the rollout, or use it as a weight",
            )


def _only_value(node: Node) -> Fraction | None:
    """The value of a component that every rollout has, whatever was measured."""
    order = walk([node])
    columns = [n for n in order if n.op == "column"]
    values = [(*(c.domain.values or ()), *([None] * c.domain.missing)) for c in columns]
    if any(n.op in (*REDUCTIONS, "copies", "given") for n in order) or any(c.domain.values is None for c in columns):
        return None
    if prod(len(v) for v in values) > MOST_ROLLOUTS:
        return None
    found = set(GroupEvaluator(node, columns, {})(list(product(*values)), {}))
    return found.pop() if len(found) == 1 else None


@finding("scale-turns-sign")
def scale_turns_sign(facts: Facts) -> Iterator[Diagnostic]:
    """A scale whose ends are swapped.

    `scale: [lo, hi]` maps the least declared value onto `lo` and the greatest onto `hi`. With `lo` above `hi` the best
    is paid the least. It follows from the formula of `scale`.

    ```yaml
    components:
      errors: {range: [0, 10], scale: [1, 0]}        # if that is meant, a negative weight says it plainly
      correct: {range: [0, 1], scale: [1, -1]}
    advantage: grpo
    ```

    Write `scale: [-1, 1]`, or a negative weight for a penalty (`errors: {range: [0, 10], weight: -0.1}`).
    """
    for name, component in facts.document.components.items():
        declaration = facts.declared.components.get(name)
        if component.scale is None or declaration is None:
            continue
        call = next((e for e in _calls(declaration.value) if e.function.text == "rescale"), None)
        ends = [_number(e) for e in call.arguments[3:]] if call is not None else [None, None]
        if None not in ends and ends[0] > ends[1]:
            yield facts.warn(
                "scale-turns-sign",
                f"the scale of `{name}` falls: the most is paid for the least",
                facts.component_place(name, "scale"),
                help=f"did you mean `[{format_number(ends[1])}, {format_number(ends[0])}]`; or write a negative weight",
            )


def _calls(expr: Expr | None) -> Iterator[Call]:
    match expr:
        case Call():
            yield expr
            for a in expr.arguments:
                yield from _calls(a)
        case If():
            for part in (expr.then, expr.otherwise):
                yield from _calls(part)


def _number(expr: Expr) -> Fraction | None:
    match expr:
        case Number(value=value) if isinstance(value, Fraction):
            return value
        case Operation(operator="neg", operands=(x,)):
            inner = _number(x)
            return None if inner is None else -inner
    return None


# Knobs without effect ----------------------------------------------------------------------------


@finding("weight-without-effect")
def weight_without_effect(facts: Facts) -> Iterator[Diagnostic]:
    """A weight that changes nothing.

    Doubling the weight leaves every advantage as it was, or changes all of them by one factor that the step over the
    batch takes out again: normalisation cancels it. A lone reward under GRPO is the usual case. Or nothing reads it:
    `advantage: a + b - mean(a + b)` names components, and a name stands for the value without its weight; `total` is
    the weighted sum.

    ```yaml
    components:
      correct: {values: [0, 1], weight: 10}
    advantage: grpo                                  # (R - mean) / std is the same for 10 R
    ```

    Leave it out, or weigh something that is not normalised afterwards (`dr_grpo`). verl#7965 and UniRL#146 are days
    lost on it.
    """
    for component in facts.program.components:
        name = component.name
        if facts.document.components[name].weight is None or component.weight.constant == 0:
            continue
        if unread(facts, name):
            continue  # said of the whole component
        if not facts.reads_weights:
            yield facts.warn(
                "weight-without-effect",
                f"the weight of `{name}` changes no advantage",
                facts.component_place(name, "weight"),
                note="never read",
                labels=(Label(facts.advantage_place(), "a component's name stands for its value without its weight"),),
                help="write `total`, the weighted sum, or `sum(weights * ..., over=components)`",
            )
            continue
        old = facts.declared.components[name]
        twice = Operation(old.weight.span, "*", (Number(old.weight.span, Fraction(2)), old.weight))
        negative = component.weight.domain.hi < 0
        if component.weight.constant == -1:
            continue  # it is a sign, and says so
        if _changes_nothing(facts, name, replace(old, weight=twice), "weight-without-effect"):
            yield facts.warn(
                "weight-without-effect",
                f"of the weight of `{name}` only the sign changes advantages"
                if negative
                else f"the weight of `{name}` changes no advantage",
                facts.component_place(name, "weight"),
                note="cancelled by the normalisation",
                help=("write -1" if negative else "leave it out")
                + ", or weigh something that is not normalised afterwards",
            )


@finding("scale-without-effect")
def scale_without_effect(facts: Facts) -> Iterator[Diagnostic]:
    """A scale that changes nothing.

    Without its `scale` every advantage is as it was: the component is normalised by itself (`decoupled`, `gdpo`), and a
    z-score does not see the scale of what it is made of. UniRL#146 is a scale of 15 that trained as 1 does.

    ```yaml
    components:
      format: {values: [0, 1], scale: [-2 + progress, 2 - progress]}
      correctness: {range: [-3, 3]}
    advantage: gdpo                                  # ToolRL's smooth scale has no meaning here
    ```

    Weigh instead (`weight: 2 - progress`), or sum before normalising (`grpo`).
    """
    for name, component in facts.document.components.items():
        declaration = facts.declared.components.get(name)
        if component.scale is None or declaration is None or declaration.value is None:
            continue
        plain = _unscaled(declaration.value)
        without = None if plain is None else replace(declaration, value=plain)
        if without is not None and _changes_nothing(facts, name, without, "scale-without-effect"):
            itself = _keeps_its_value(facts, name, without)
            yield facts.warn(
                "scale-without-effect",
                f"the scale of `{name}` changes no advantage",
                facts.component_place(name, "scale"),
                note="maps every value to itself" if itself else "cancelled by the normalisation",
                help="leave it out" if itself else "use a `weight`, or sum before normalising (`grpo`)",
            )


def _unscaled(expr: Expr) -> Expr | None:
    match expr:
        case Call() if expr.function.text == "rescale":
            return expr.arguments[0]
        case If():
            then = _unscaled(expr.then)
            return None if then is None else If(expr.span, expr.condition, then, expr.otherwise)
    return None


def _keeps_its_value(facts: Facts, name: str, changed: ComponentDeclaration) -> bool:
    """Whether another declaration of a component gives it the same values, as groups from all over show."""
    other = _variant(facts.spec, name, changed)
    if other is None:
        return False
    theirs = Facts(other)
    node = next(c.shaped for c in theirs.question.program.components if c.name == name)
    pairs = [(facts.shaped_in(name, group), facts.transferred(theirs, group, of=node)) for group in scattered(facts)]
    return all(own is not None and own == moved for own, moved in pairs)


def _changes_nothing(facts: Facts, name: str, changed: ComponentDeclaration, code: str) -> bool:
    """Whether another declaration of a component gives the same advantages, as the graphs or all small groups show.

    Where neither shows it, and no group is seen in which something changes, the finding `code` is left out.
    """
    try_groups = facts.groups is not None and 3 in facts.groups and not facts.question.intervals
    if not try_groups and len(facts.question.program.graph.nodes) * len(facts.shaped) > MOST_LOWERED:
        facts.leave_out(code, f"there are too many components ({len(facts.shaped)}) to look at each anew")
        return False
    other = _variant(facts.spec, name, changed)
    if other is None:
        return False
    theirs = Facts(other)
    if facts.declared.eps > SMALL or any(True for of in (facts, theirs) for _ in eps_outweighs_spread(of)):
        return False  # eps tells large from small
    if _same_graphs(facts, theirs):
        return True
    of_batch = facts.looks_at_batch or theirs.looks_at_batch or not (_only_divides(facts) and _only_divides(theirs))
    small = [group for groups in facts.groups.values() for group in groups] if try_groups and not of_batch else []
    moved, unknown = False, not small
    for group in [*small, *scattered(facts)]:
        a = facts.values(facts.question.program.advantage, group)  # the group for the whole batch
        b = facts.transferred(theirs, group, whole=True)
        if a is None or b is None:
            unknown = True
        elif a != b:
            return False
        else:
            moved = moved or any(a)
    if unknown and moved:
        facts.leave_out(code, OF_BATCH if of_batch else "it changed nothing in the groups that were tried, not all")
    return moved and not unknown


def _only_divides(facts: Facts) -> bool:
    """Whether the batch is looked at for no more than a mean that is taken off and a deviation that is divided by.

    Then a weight that does nothing where one group is the whole batch does nothing where it is a part of it; unless
    columns of the group make groups differ.
    """
    order = walk([facts.question.program.advantage])
    users = users_of(order)
    queue = [n for n in order if over_batch(n)]
    if queue and facts.question.coarse:
        return False
    while queue:
        node = queue.pop()
        if over_batch(node) and (node.op not in ("std", "mean") or node.args[0].level is not Level.ROLLOUT):
            return False
        for user in users.get(node, []):
            if user.op in ("spread", "required"):
                queue.append(user)
            elif not (
                (user.op == "/" and user.args[1] is node and node.op != "mean")
                or (user.op == "-" and user.args[1] is node and node.op != "std")
                or (user.op == ">" and user.args[1].constant == 0)
            ):
                return False
    return True


def _same_graphs(facts: Facts, theirs: Facts) -> bool:
    """Whether two specs are the same but for what z-scores cancel, so that all their advantages are."""
    numbers: dict[tuple, int] = {}
    first, second = (_numbered(of.question.program, numbers) for of in (facts, theirs))
    return first == second


def _numbered(program: Program, numbers: dict[tuple, int]) -> int:
    """A number for the advantage, equal for equal values: a z-score goes by what it is of, less scale and shift."""
    own: dict[Node, int] = {}

    def number(node: Node) -> int:
        if node in own:
            return own[node]
        z = match_zscore(program.graph, node)
        if z and z.where is None and z.by is None and z.eps is None:
            key = ("zscore", z.over, z.ddof, number(_unscaled_node(z.x, z.over)))
        else:
            key = (node.op, node.attributes, node.level, *(number(a) for a in node.args))
        own[node] = numbers.setdefault(key, len(numbers))
        return own[node]

    return number(program.advantage)


def _unscaled_node(node: Node, over: Level) -> Node:
    """`node` less positive factors and shifts that are the same for all of a group (or batch): no z-score sees them."""
    while True:
        coarse = [(a.args[0] if a.op == "spread" else a).level <= over < node.level for a in node.args]
        match node.op, node.args:
            case "+" | "*", (a, b) if coarse[0] != coarse[1]:
                same, rest = (a, b) if coarse[0] else (b, a)
            case "-" | "/", (rest, same) if coarse[1] and not coarse[0]:
                pass
            case _:
                return node
        if same.domain.missing or not same.domain.bounded or (node.op in "*/" and not same.domain.lo > 0):
            return node
        node = rest


def scattered(facts: Facts, size: int = 4) -> list[tuple]:
    """Groups with values from all over their domains: what holds of them by chance holds."""
    draw = random.Random(0)

    def value(node: Node, points: list):
        if node.domain.values is not None:
            return draw.choice(points)
        lo = node.domain.lo if node.domain.lo > -inf else Fraction(-100)
        hi = (
            node.domain.hi
            if node.domain.hi < inf
            else max(Fraction(lo), *(p for p in points if p is not None)) * 2 + 100
        )
        return lo + (hi - lo) * Fraction(draw.randint(0, 997), 997)

    fine, question = facts.question.fine, facts.question
    moments = _moments(facts)
    return [
        (
            tuple(tuple(value(node, points) for node, points in fine.items()) for _ in range(size)),
            {name: draw.choice(points) for name, points in question.coarse.items()},
            moments[i % len(moments)],
        )
        for i in range(max(25, 5 * len(moments)))
    ]


def _moments(facts: Facts) -> list[dict[str, Fraction]]:
    """Moments of the run on both sides of, and between, all that a schedule does."""
    order = walk([facts.question.root])
    users = users_of(order)
    given = {n.attributes[0]: n for n in order if n.op == "given" and n.attributes[0] in ("step", "progress")}
    found = list(facts.question.moments)
    for name, node in given.items():
        for point in points_of(node.domain, node, users)[0]:
            if len(found[0]) == 1:
                found.append({"step": Fraction(round(point))})
            else:
                total = found[0]["total_steps"]
                progress = point if name == "progress" else min(point / total, Fraction(1))
                found.append({"step": progress * total, "total_steps": total, "progress": progress})
    return [moment for i, moment in enumerate(found) if moment not in found[:i]]


def _variant(spec: Spec, name: str, changed: ComponentDeclaration) -> Spec | None:
    declared = replace(spec.declarations, components={**spec.declarations.components, name: changed})
    with deep_stack():
        program = lower(declared, Report())
    return None if program is None else Spec(spec.source, declared, program, spec.diagnostics)


# Schedules ---------------------------------------------------------------------------------------


@finding("abrupt-schedule")
def abrupt_schedule(facts: Facts) -> Iterator[Diagnostic]:
    """A scale or weight that jumps at one step.

    From one step to the next the reward is another one, and advantages that were learnt from are worth something else.
    ToolRL (arXiv:2504.13958), Sec. 5.2, compares such a switch with a smooth one: the switch loses, the ramp wins.

    ```yaml
    components:
      correct: {values: [0, 1]}
      format: {values: [0, 1], weight: 1 if step < 30 else 0.5}
    advantage: grpo
    ```

    Write a ramp: `weight: "1 - 0.5 * ramp(step, start=20, end=60)"`.
    """
    lowering = Lowering(facts.declared, Report())
    for name, declaration in facts.declared.components.items():
        document = facts.document.components[name]
        call = next((e for e in _calls(declaration.value) if e.function.text == "rescale"), None)
        for key, written, exprs in (
            ("weight", document.weight, [declaration.weight]),
            ("scale", document.scale, [] if call is None else call.arguments[3:]),
        ):
            if written is not None and any(_jumps(facts, lowering, expr) for expr in exprs):
                yield facts.warn(
                    "abrupt-schedule",
                    f"the {key} of `{name}` jumps at one step",
                    facts.component_place(name, key),
                    help="a ramp is gentler: `ramp(step, start=20, end=60)` goes from 0 to 1",
                )


def _jumps(facts: Facts, lowering: Lowering, expr: Expr) -> bool:
    """Whether there are two steps, one after the other, between which a schedule does much of all that it does."""
    try:
        whole = lowering.number(expr, lowering.user)
    except Skip:
        return False
    order, users = walk([whole]), users_of(walk([whole]))
    times = ("step", "progress", "total_steps")
    timed: set[Node] = set()  # that depend on time and on nothing else
    for n in order:
        known = all(a in timed or a.op == "const" for a in n.args)
        if (n.op == "given" and n.attributes[0] in times) or (n.args and known and is_elementwise(n)):
            timed.add(n)
    marks = {p for n in timed if n.attributes == ("step",) for p in points_of(n.domain, n, users)[0]}
    last = Fraction(facts.run.total_steps or max(1000, 2 * ceil(max(marks, default=0))))
    steps = {*(p + d for p in marks for d in (-1, 0, 1)), *(last * i / GRID for i in range(GRID + 1))}
    for node in timed:
        if last < FEW_STEPS or any(u in timed for u in users.get(node, [])):
            continue

        def at(step: Fraction, of: Node = node):
            moment = {"step": step, "total_steps": last, "progress": step / last}
            with suppress(Inexact):
                return GroupEvaluator(of, [], moment)([()], {})[0]

        values = [(step, at(step)) for step in sorted(steps) if 0 <= step <= last - 1]
        if any(value is None for _, value in values):
            continue
        span = max(value for _, value in values) - min(value for _, value in values)
        for (low, below), (high, above) in pairwise(values):
            while high - low > SHORTEST and span and abs(above - below) * 10 >= span:
                middle = (low + high) / 2
                value = at(middle)
                if value is None:
                    break
                nearer = abs(value - below) > abs(above - value)
                (high, above), (low, below) = (
                    ((middle, value), (low, below)) if nearer else ((high, above), (middle, value))
                )
            if span and abs(above - below) * 10 >= span and high - low <= SHORTEST:
                return True
    return False


@finding("schedule-never-moves")
def schedule_never_moves(facts: Facts) -> Iterator[Diagnostic]:
    """A schedule that is the same from the first step to the last.

    A scale or weight is written with `step` or `progress`, and has one value all the same: the ramp starts after the
    end of training, or its ends are equal. It follows from the formula: `progress` goes from 0 to 1.

    ```yaml
    components:
      correct: {values: [0, 1]}
      format: {values: [0, 1], weight: "1 - ramp(progress, start=1, end=2)"}     # progress ends at 1
    advantage: grpo
    ```

    Let it begin and end within the run: `weight: "1 - ramp(progress, start=0.5, end=1)"`.
    `rewardspec explain SPEC --at 0,50%,100% --total-steps N` shows what it is when.
    """
    for component in facts.program.components:
        declaration = facts.declared.components[component.name]
        if facts.document.components[component.name].weight is None or declaration.weight is None:
            continue
        moves = facts.names(declaration.weight) & {"step", "progress"}
        if moves and component.weight.constant is not None:
            yield facts.warn(
                "schedule-never-moves",
                f"the weight of `{component.name}` is {format_number(component.weight.constant)} at every step",
                facts.component_place(component.name, "weight"),
                help="`progress` goes from 0 to 1",
            )
