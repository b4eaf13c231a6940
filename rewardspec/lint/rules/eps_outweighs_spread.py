"""An eps that is larger than the spread it guards.

`zscore` divides by the standard deviation plus eps. If the declared values are so close together that their deviation
is below eps, eps decides. The advantages are then much smaller than 1, and rewards on a larger scale outweigh this one
although each is normalised. Dialects have 1e-4 (TRL), 1e-6 (verl), 1e-9 (OpenRLHF).

```yaml
components: {correct: {values: [0, 1]}, tidy: {values: [0, 0.001]}}
advantage: gdpo
numerics: {eps: 0.01}                            # the z-scores of tidy are 0.05 instead of 0.7
```

Use the usual eps (`numerics: {eps: 1e-6}`), or scale the values up (`scale: [0, 1]`).

It follows from the formula, spread / (spread + eps).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rewardspec.lint.eps import outweighed_by_eps
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic, Label
from rewardspec.text.numbers import format_number

USUAL_EPS = Fraction(1, 10**6)


@finding("eps-outweighs-spread", __doc__)
def eps_outweighs_spread(facts: Facts) -> Iterator[Diagnostic]:
    eps, found = facts.declared.eps, outweighed_by_eps(facts)
    if found is None:
        return
    node, least = found
    place = facts.declared.place.at("numerics", "eps")
    yield facts.warn(
        "eps-outweighs-spread",
        f"eps {format_number(eps)} is larger than the spread {least:.3g} that it is added to",
        place.value if place is not None else facts.own_place(node),
        labels=(Label(facts.own_place(node), "normalised with this eps"),) if place is not None else (),
        help="set `eps: 1e-6`, or scale the values up: `scale: [0, 1]`"
        if eps > USUAL_EPS
        else "scale the values up: `scale: [0, 1]`",
    )
