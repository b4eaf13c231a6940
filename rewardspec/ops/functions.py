"""The language's own functions: what each is called with. What they mean is in `ir/lower.py`.

`over`, `where` and `by` belong to every reduction. Everything else that can be called is a
definition of the prelude or of the spec.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """Names of the arguments; the first `required` must be given. `rest`: any number may follow."""

    parameters: tuple[str, ...]
    required: int
    keywords: tuple[str, ...] = ()
    rest: bool = False

    def signature(self, name: str) -> str:
        parts = [p if i < self.required else f"{p}=..." for i, p in enumerate(self.parameters)]
        parts += ["..."] * self.rest + [f"{k}=..." for k in self.keywords]
        return f"{name}({', '.join(parts)})"


_REDUCTION = ("over", "where", "by")
ONE_VALUE = ("abs", "sigmoid", "tanh", "exp", "log", "sqrt", "cos", "floor", "round", "sign")
TAKES_CONDITIONS = ("any", "all")

FUNCTIONS: dict[str, Function] = {
    **{name: Function(("x",), 1) for name in ONE_VALUE},
    "min": Function(("x",), 1, _REDUCTION, rest=True),
    "max": Function(("x",), 1, _REDUCTION, rest=True),
    "clip": Function(("x", "low", "high"), 3),
    "raw": Function(("name",), 1),
    "required": Function(("x",), 1),
    "present": Function(("x",), 1),
    "coalesce": Function(("x", "otherwise"), 2, rest=True),
    **{name: Function(("x",), 1, _REDUCTION) for name in ("mean", "sum", "count", "any", "all", "rank")},
    "std": Function(("x",), 1, (*_REDUCTION, "ddof")),
    "var": Function(("x",), 1, (*_REDUCTION, "ddof")),
    "std_others": Function(("x",), 1, (*_REDUCTION, "ddof")),
    "quantile": Function(("x", "q"), 2, _REDUCTION),
}
