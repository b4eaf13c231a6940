"""Gates: when a component counts."""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.groups.moments import moments_of
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.finding import NO_OUTCOME, Facts, finding, some_rollouts
from rewardspec.lint.outcome import Outcome, words_of
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.syntax.tree import Expr, If, Operation
from rewardspec.text.diagnostics import Diagnostic, Label, Report
from rewardspec.text.numbers import format_number

_LENGTHS = {"length", "lengths", "len", "truncated", "truncation", "overlong"}
_COUNTED = {"token", "tokens", "word", "words", "char", "chars", "character", "characters"}
_OF_SOME_KIND = {"bad", "banned", "stop", "special", "forbidden", "repeated", "foreign", "unknown"}
NARROW = 2  # of a range: wider ones hold counts, too
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def _condition(facts: Facts, name: str) -> Node | None:
    """The gate of a component as a node of a graph of its own."""
    declaration = facts.declared.components[name]
    if declaration.when is None or not isinstance(declaration.value, If):
        return None
    lowering = Lowering(facts.declared, Report())
    try:
        return lowering.condition(declaration.when, lowering.user)
    except Skip:
        return None


@finding("gate-always-open")
def gate_always_open(facts: Facts) -> Iterator[Diagnostic]:
    """A gate that is never closed.

    `when:` holds for every value that the declared domains allow, so it does nothing. Most often the threshold is
    on the wrong scale, or `>=` stands where `>` was meant. It follows from the declared domains.

    ```yaml
    components:
      correct: {values: [0, 1]}
      style: {range: [0, 1], when: correct >= 0}     # meant: correct >= 1
    advantage: grpo
    ```

    Write the threshold that separates the cases (`when: correct >= 1`), or leave `when` out.
    """
    for name in facts.declared.components:
        condition = _condition(facts, name)
        if condition is not None and condition.domain.constant == 1:
            yield facts.warn(
                "gate-always-open",
                f"the gate of `{name}` is never closed",
                facts.component_place(name, "when"),
                note="always true",
                help="write the threshold that tells the cases apart, or leave `when` out",
            )


@finding("gate-on-moving-scale")
def gate_on_moving_scale(facts: Facts) -> Iterator[Diagnostic]:
    """A threshold on a value whose scale moves with training.

    A gate compares a component with a number, and that component has a `scale` that depends on `step` or `progress`.
    What passed the gate yesterday fails it tomorrow, though nothing about the rollouts has changed. It follows from the
    formula of `scale`.

    ```yaml
    components:
      correctness: {range: [-3, 3], scale: [-2 - progress, 2 + progress]}
      length: {range: [0, 1], when: correctness >= 2}          # -2 to 2 at the start, -3 to 3 at the end
    advantage: grpo
    ```

    Compare what was measured: `when: raw(correctness) >= 3`.
    """
    for name in facts.declared.components:
        for other in sorted(facts.gate_names(name)):
            component = facts.document.components.get(other)
            if component is None or component.scale is None or other == name:
                continue
            if any(_moves(facts, gate, other) for gate in facts.gates(name)):
                yield facts.warn(
                    "gate-on-moving-scale",
                    f"the gate of `{name}` compares `{other}`, whose scale moves with training",
                    facts.component_place(name, "when" if facts.document.components[name].when else "stages"),
                    labels=(Label(facts.component_place(other, "scale"), "moves"),),
                    help=f"compare what was measured: `raw({other})`"
                    if other in facts.declared.columns
                    else f"compare what `{other}` is made of",
                )


def _moves(facts: Facts, gate: Expr, other: str) -> bool:
    """Whether a rollout passes a gate at one moment and not at another, because of what `other` is worth then."""
    lowering = Lowering(facts.declared, Report())
    try:
        condition = lowering.condition(gate, lowering.user)
        value = lowering.component(other)
    except Skip:
        return False
    compared = [n for n in walk([condition]) if n.op in COMPARISONS and value in walk([n])]
    tried = some_rollouts([condition])
    if tried is None or not any(n.op == "given" for n in walk([value])):
        return False
    columns, rows = tried
    moments, _ = moments_of([condition])
    seen = [[GroupEvaluator(n, columns, moment)(rows, {}) for moment in moments] for n in (condition, *compared)]
    passes, *comparisons = ([set(at) for at in zip(*by_moment, strict=True)] for by_moment in seen)
    return any(
        len(passes[i]) > 1 and any(len(comparison[i]) > 1 for comparison in comparisons) for i in range(len(rows))
    )


@finding("equality-on-interval")
def equality_on_interval(facts: Facts) -> Iterator[Diagnostic]:
    """A score on a scale that is asked to be equal to a number.

    A value between 0 and 1 is hardly ever exactly 0.5, and a score that was averaged, rounded or read from text misses
    1 by a little: the condition is as good as never met, and nothing says so when it runs. Counts, whose ranges are
    wide, and values that are rounded first are left alone. It follows from what an interval is.

    ```yaml
    components:
      score: {range: [0, 1]}
      style: {range: [0, 1], when: score == 1}
    advantage: gdpo
    ```

    Write `score >= 1`, or the threshold that counts as full (`score >= 0.99`); or declare the values that there are
    (`values: [0, 0.5, 1]`).
    """
    lowering = Lowering(facts.declared, Report())
    for _, part in facts.own_expressions():
        if not isinstance(part, Operation) or part.operator not in ("==", "!="):
            continue
        try:
            left, right = (lowering.number(operand, lowering.user) for operand in part.operands)
        except Skip:
            continue
        score, limit = (right, left) if left.constant is not None else (left, right)
        if limit.constant is None or not _is_score(score):
            continue
        text = part.operands[0 if score is left else 1].span.text
        at = format_number(limit.constant)
        better = f"`{text} >= {at}`" if limit.constant >= score.domain.hi else f"`{text} <= {at}`"
        if score.domain.lo < limit.constant < score.domain.hi:
            better = f"a threshold, `{text} >= {at}`"
        yield facts.warn(
            "equality-on-interval",
            f"`{text}` is anything in {score.domain.present()}, and hardly ever exactly {at}",
            part.span,
            help=f"write {better}, or declare the `values:` that there are",
        )


def _is_score(node: Node) -> bool:
    """Whether a node is a measured score on a narrow scale: not a count, and not rounded."""
    while node.op in ("required", "spread", "coalesce"):
        node = node.args[0]
    domain = node.domain
    return node.op == "column" and domain.values is None and domain.bounded and domain.hi - domain.lo <= NARROW


@finding("ungated-sibling")
def ungated_sibling(facts: Facts) -> Iterator[Diagnostic]:
    """A gate that leaves its siblings paid.

    One component counts only where the outcome is right; another one, that is no outcome, counts everywhere. A gate
    inside a sum holds back its own term and no other: where the outcome fails, the other component is still paid. It
    happened in OpenEnv#599.

    ```yaml
    components:
      correct: {values: [0, 1]}
      length: {range: [0, 1], when: correct >= 1}
      style: {range: [0, 1]}                         # paid for wrong answers as well
    advantage: grpo
    ```

    Gate it too (`style: {range: [0, 1], when: correct >= 1}`), or say that it is meant:
    `allow: {ungated-sibling: style counts in wrong answers as well}`.
    """
    outcome = facts.outcome
    if outcome is None:
        if len(facts.shaped) > 1 and any(facts.gates(name) for name in facts.shaped):
            facts.leave_out("ungated-sibling", NO_OUTCOME)
        return
    gated = [name for name in facts.declared.components if facts.counts_only_where(name, outcome.expr)]
    if not gated:
        return
    for name in _besides(facts, outcome):
        yield facts.warn(
            "ungated-sibling",
            f"`{name}` is paid also where `{outcome.shown}` fails, unlike `{gated[0]}`",
            facts.component_place(name),
            labels=(Label(facts.component_place(gated[0]), "counts only where it holds"),),
            help=f"{facts.gate_help(name, outcome)}, or `allow: {{ungated-sibling: why}}`",
        )


def _besides(facts: Facts, outcome: Outcome) -> list[str]:
    """Components that are paid for rollouts that are not right, but for those written with the outcome in mind."""
    found = []
    for name in facts.paid_where_wrong:
        value = facts.declared.components[name].value
        reads = {n.attributes[0] for n in walk([facts.shaped[name]]) if n.op == "column"}
        if name not in outcome.reads and not outcome.reads & (facts.gate_names(name) | reads | facts.names(value)):
            found.append(name)
    return found


@finding("length-without-success")
def length_without_success(facts: Facts) -> Iterator[Diagnostic]:
    """A length reward that is paid for wrong answers.

    A component looks at the length of the response and counts whether or not the answer is right. Being short (or
    long) is easier than being right, so that is what is learnt first, and wrong short answers are what comes of it.
    GDPO (arXiv:2601.05242), Sec. 4.2: a lower weight does not mend it; a gate does. It happened in open-r1#360,
    prime-rl#3376 and NVlabs/GDPO#10.

    ```yaml
    signals: {tokens: {range: [0, .inf]}}
    components:
      correct: {values: [0, 1]}
      length: tokens <= 4000
    advantage: gdpo
    ```

    Write `length: {expr: tokens <= 4000, when: correct >= 1}`.
    """
    outcome = facts.outcome
    if outcome is None:
        read = {n.attributes[0] for n in walk(facts.shaped.values()) if n.op == "column"}
        if len(read) > 1 and any(_is_length(facts, column) for column in read):
            facts.leave_out("length-without-success", NO_OUTCOME)
        return
    for name in _besides(facts, outcome):
        reads = {n.attributes[0] for n in walk([facts.shaped[name]]) if n.op == "column"}
        if any(_is_length(facts, column) for column in reads):
            yield facts.warn(
                "length-without-success",
                f"`{name}` is paid for its length whether or not `{outcome.shown}` holds",
                facts.component_place(name),
                help=facts.gate_help(name, outcome),
            )


def _is_length(facts: Facts, column: str) -> bool:
    """Whether a column is a length, or whether there was too much of it, by the words of its name."""
    words = words_of(column)
    values = facts.declared.columns[column].domain.values
    counts = words & _COUNTED and not words & _OF_SOME_KIND and (values is None or len(values) > 2)
    return bool(counts or words & _LENGTHS)
