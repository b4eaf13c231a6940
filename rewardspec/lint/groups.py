"""Groups: what a policy's groups are left with, at sizes that the caller names."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rewardspec.diagnostics import Diagnostic, Label
from rewardspec.lint.finding import Facts, finding

MOSTLY = 0.5  # of groups without gradient
MOST_ROLLOUTS = 64  # of a group that is counted


@finding("dead-groups")
def dead_groups(facts: Facts) -> Iterator[Diagnostic]:
    """Most groups have no gradient at the success rate that is stated.

    Where all rollouts of a prompt succeed or all fail, advantages are 0 and the prompt is paid for without being
    learnt from. With a success rate p and groups of G this happens to p^G + (1 - p)^G of the groups of a lone binary
    reward: 66% at p = 0.05 and G = 8. Asked for with `rewardspec check SPEC --p correct=0.05 -g 8`; values for which
    no rate is given are taken to come up equally often. trl#3857, ROLL#397 and gem#113 are runs at loss 0.

    ```yaml
    components: {correct: {values: [0, 1]}}
    advantage: grpo
    ```

    Take larger groups, easier prompts or partial credit (`values: [0, 0.5, 1]`); draw the groups that have a gradient
    again (`keep:` and `refill:`). `rewardspec simulate SPEC --p correct=0.05 -g 8,16,32` shows how far each helps.
    """
    if not facts.run.rates or facts.question.intervals or facts.question.root.domain.missing:
        return
    if facts.looks_at_batch or facts.question.step == "shift":
        return
    from rewardspec.analysis.policy import policy
    from rewardspec.analysis.simulate import count_groups

    model = policy(facts.program, facts.run.rates)
    for size in facts.run.sizes:
        moment = {"step": Fraction(0), "total_steps": Fraction(1), "progress": Fraction(0)}
        signal = count_groups(facts.program, facts.spec.name, size, moment, model=model).signal
        if signal is None or not signal.groups_without_signal > MOSTLY:
            continue
        rates = ", ".join(f"{name}={float(rate):g}" for name, rate in facts.run.rates.items())
        larger = ",".join(str(n) for n in (size, 2 * size, 4 * size) if n <= MOST_ROLLOUTS)
        places = [facts.component_place(name) for name in facts.run.rates if name in facts.shaped]
        yield facts.warn(
            "dead-groups",
            f"{signal.groups_without_signal:.0%} of groups of {size} have no gradient under {rates}",
            facts.advantage_place(),
            labels=tuple(Label(place, "succeeds that often") for place in places),
            help="larger groups, easier prompts or partial credit leave fewer; "
            f"`rewardspec simulate SPEC --p {rates.replace(' ', '')} -g {larger}` shows how many",
        )
