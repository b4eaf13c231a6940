"""The advantage as a whole: what it is compared with, which way it pushes, and whether it is what its name says."""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import Node, walk
from rewardspec.language.prelude import prelude
from rewardspec.lint.finding import Facts, finding
from rewardspec.lint.outcome import named_component
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.ops.domain import Level
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.syntax.tree import Call, Name
from rewardspec.text.diagnostics import Diagnostic, Label, Report
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Span

_NO_SCHEMES = ("total", "measured")  # which specs write anew on purpose: `total: outcome * process`


@finding("no-baseline")
def no_baseline(facts: Facts) -> Iterator[Diagnostic]:
    """An advantage that is compared with nothing, and never below 0.

    No rollout is pushed down, bad ones are pushed up less than good ones: the policy gradient has no baseline. It is
    unbiased, but its variance is that of the rewards themselves, and with few samples what was drawn is made likelier
    because it was drawn. It follows from the formula: nothing is reduced over the group or the batch.

    ```yaml
    components:
      correct: {values: [0, 1]}
      format: {values: [0, 1], weight: 0.2}
    advantage: total
    ```

    Compare each rollout with its group, `advantage: grpo`, `dr_grpo`, `rloo`, or with the batch, `whiten(total)`.
    """
    root = facts.program.advantage
    order = walk([root])
    if any(n.op in REDUCTIONS or n.op == "copies" for n in order):
        return
    if any(n.op == "column" and n.level < Level.ROLLOUT for n in order):  # a baseline that was measured
        return
    few = root.domain.values is not None and len(root.domain.values) <= 2 and root.domain.lo == 0
    if root.domain.lo < 0 or root.domain.hi <= 0 or few:  # right answers alone are pushed up: a filter
        return
    yield facts.warn(
        "no-baseline",
        "the advantage is never below 0 and compared with nothing: no rollout is pushed down",
        facts.advantage_place(),
        help="compare it with its group, `grpo`, `dr_grpo` or `rloo`, or with the batch, `whiten(total)`",
    )


@finding("negative-outcome")
def negative_outcome(facts: Facts) -> Iterator[Diagnostic]:
    """An outcome with a weight below 0.

    What says that an answer is right weighs less than nothing, so that right answers are pushed down and wrong ones up.
    A sign that is left over from a loss or a penalty looks like this. It follows from the formula of the weighted sum.

    ```yaml
    components: {correct: {values: [0, 1], weight: -1}}
    advantage: grpo
    ```

    Leave the weight out, or write `weight: 1`.
    """
    outcome = facts.outcome
    name = outcome.component if outcome is not None else named_component(facts.declared, facts.program)
    component = next((c for c in facts.program.components if c.name == name), None)
    if component is None or component.weight.domain.hi >= 0 or component.shaped.domain.hi <= 0:
        return
    if not facts.reads_weights:
        return  # which is said of the weight
    weight = component.weight.constant
    yield facts.warn(
        "negative-outcome",
        f"`{name}` weighs {'less than 0' if weight is None else format_number(weight)}: right answers are pushed down",
        facts.component_place(name, "weight"),
        help="leave the weight out, or write one above 0",
    )


@finding("hides-prelude")
def hides_prelude(facts: Facts) -> Iterator[Diagnostic]:
    """A definition that is called as a scheme is, and is another one.

    A name of the spec hides the prelude's. Who reads `advantage: grpo` takes it for GRPO (arXiv:2402.03300), and
    `rewardspec list` says that it is; the spec means something else by it. It is a rule of this language that the
    nearer name counts. `total` is not looked at: to write it anew is a way to say what is summed.

    ```yaml
    components: {correct: {values: [0, 1]}, format: {values: [0, 1], when: correct >= 1}}
    define:
      grpo: correct + format - mean(correct + format)
    advantage: grpo
    ```

    Give it a name of its own, `summed: correct + format - mean(correct + format)`, and write `advantage: summed`.
    """
    used = {part.text: part.span for _, part in facts.own_expressions() if isinstance(part, Name)}
    called = {part.function.text: part.span for _, part in facts.own_expressions() if isinstance(part, Call)}
    shipped = prelude(facts.declared.dialect)
    for name in shipped.values:
        own = name in facts.declared.values or name in facts.declared.components or name in facts.declared.columns
        if own and name in used and name not in _NO_SCHEMES and not _is_same(facts, name, used[name]):
            yield _hidden(facts, name, used[name])
    for name in shipped.functions:
        if name in facts.declared.functions and name in called:
            yield _hidden(facts, name, called[name])


def _is_same(facts: Facts, name: str, span: Span) -> bool:
    """Whether the spec's own value comes down to the prelude's."""
    lowering = Lowering(facts.declared, Report())
    try:
        own, shipped = (lowering.value(Name(span, name), scope) for scope in (lowering.user, lowering.own))
    except Skip:
        return True
    return own is shipped if isinstance(own, Node) else own == shipped


def _hidden(facts: Facts, name: str, used: Span) -> Diagnostic:
    place = next(
        facts.root_node.get(section).key(key).span
        for section in ("define", "components", "signals")
        if facts.root_node.get(section) is not None
        for key in (k.text for k, _ in facts.root_node.get(section).items)
        if key.partition("(")[0].strip() == name
    )
    return facts.warn(
        "hides-prelude",
        f"`{name}` is the spec's own here, and not what the prelude calls so",
        place,
        labels=(Label(used, "read as the spec's own"),),
        help="give it a name of its own",
    )
