"""A scale whose ends are swapped.

`scale: [lo, hi]` maps the least declared value to `lo` and the greatest to `hi`. If `lo` is above `hi`, the best value
gets the smallest reward.

```yaml
components:
  errors: {range: [0, 10], scale: [1, 0]}        # if this is meant, a negative weight is plainer
  correct: {range: [0, 1], scale: [1, -1]}
advantage: grpo
```

Write `scale: [-1, 1]`, or a negative weight for a penalty (`errors: {range: [0, 10], weight: -0.1}`).

It follows from the formula of `scale`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.scale import scale_ends
from rewardspec.syntax.tree import Expr, Number, Operation
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.numbers import format_number


@finding("scale-turns-sign", __doc__)
def scale_turns_sign(facts: Facts) -> Iterator[Diagnostic]:
    for name, declaration in facts.declared.components.items():
        ends = scale_ends(declaration.value) if declaration.says("scale") else ()
        lo, hi = map(_number, ends) if ends else (None, None)
        if lo is not None and hi is not None and lo > hi:
            yield facts.warn(
                "scale-turns-sign",
                f"the scale of `{name}` is reversed: the least value is rewarded most",
                facts.component_place(name, "scale"),
                help=f"swap the ends, `[{format_number(hi)}, {format_number(lo)}]`, or use a negative weight",
            )


def _number(expr: Expr) -> Fraction | None:
    match expr:
        case Number(value=value) if isinstance(value, Fraction):
            return value
        case Operation(operator="neg", operands=(x,)):
            inner = _number(x)
            return None if inner is None else -inner
    return None
