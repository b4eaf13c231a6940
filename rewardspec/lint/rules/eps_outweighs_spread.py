"""An eps that is larger than the spread it guards.

`zscore` divides by the standard deviation plus eps. Where the declared values lie so close together that their
deviation is below eps, eps decides: advantages are no longer of size 1, and rewards on a larger scale outweigh
this one though each is said to be normalised. Dialects have 1e-4 (TRL), 1e-6 (verl), 1e-9 (OpenRLHF).

```yaml
components: {correct: {values: [0, 1]}, tidy: {values: [0, 0.001]}}
advantage: gdpo
numerics: {eps: 0.01}                            # tidy's z-scores are 0.05 in place of 0.7
```

Leave it out (`numerics: {eps: 1e-6}`), or scale the values up (`scale: [0, 1]`). It follows from the formula,
spread / (spread + eps).
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
        f"eps {format_number(eps)} is more than a spread of {least:.3g} that it is added to",
        place.value if place is not None else facts.own_place(node),
        labels=(Label(facts.own_place(node), "normalised with it"),) if place is not None else (),
        help="leave eps at 1e-6, or scale the values up: `scale: [0, 1]`"
        if eps > USUAL_EPS
        else "scale the values up: `scale: [0, 1]`",
    )
