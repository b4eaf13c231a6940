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
    about: str = ""

    def signature(self, name: str) -> str:
        parts = [p if i < self.required else f"{p}=..." for i, p in enumerate(self.parameters)]
        parts += ["..."] * self.rest + [f"{k}=..." for k in self.keywords]
        return f"{name}({', '.join(parts)})"


_REDUCTION = ("over", "where", "by")
ONE_VALUE = ("abs", "sigmoid", "tanh", "exp", "log", "sqrt", "cos", "floor", "round", "sign")
TAKES_CONDITIONS = ("any", "all")

_ABOUT = {
    "abs": "magnitude",
    "sigmoid": "1 / (1 + exp(-x))",
    "tanh": "hyperbolic tangent",
    "exp": "e to the power of x",
    "log": "natural logarithm; an error at 0 or less",
    "sqrt": "square root; an error below 0",
    "cos": "cosine of an angle in radians",
    "floor": "the whole number at or below",
    "round": "the nearest whole number, halves to the even one",
    "sign": "-1, 0 or 1",
    "min": "least of a group; of several arguments elementwise",
    "max": "greatest of a group; of several arguments elementwise",
    "mean": "of what is present, missing of nothing",
    "sum": "of what is present, 0 of nothing",
    "count": "how many are present",
    "any": "whether one condition holds at least",
    "all": "whether no condition fails",
    "rank": "1 is least, ties share the lower",
    "std": "standard deviation, 0 without spread; divisor: count less ddof",
    "var": "variance, 0 without spread; divisor: count less ddof",
}

FUNCTIONS: dict[str, Function] = {
    **{name: Function(("x",), 1, about=_ABOUT[name]) for name in ONE_VALUE},
    "min": Function(("x",), 1, _REDUCTION, rest=True, about=_ABOUT["min"]),
    "max": Function(("x",), 1, _REDUCTION, rest=True, about=_ABOUT["max"]),
    "clip": Function(("x", "low", "high"), 3, about="min(max(x, low), high)"),
    "raw": Function(("name",), 1, about="a column as it was measured"),
    "required": Function(("x",), 1, about="x; an error where it is missing and asked for"),
    "present": Function(("x",), 1, about="1 where x is not missing, else 0"),
    "coalesce": Function(("x", "otherwise"), 2, rest=True, about="the first that is not missing"),
    **{
        name: Function(("x",), 1, _REDUCTION, about=_ABOUT[name])
        for name in ("mean", "sum", "count", "any", "all", "rank")
    },
    **{name: Function(("x",), 1, (*_REDUCTION, "ddof"), about=_ABOUT[name]) for name in ("std", "var")},
    "std_others": Function(
        ("x",), 1, (*_REDUCTION, "ddof"), about="for each value the standard deviation of the others"
    ),
    "quantile": Function(("x", "q"), 2, _REDUCTION, about="linear between the two nearest values"),
}
