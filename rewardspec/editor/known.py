"""The names that every spec can use: schemes, definitions, functions, given values, axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from rewardspec.language.catalogue import comment_of, schemes
from rewardspec.language.declarations import AXES, GIVEN, Definition
from rewardspec.language.prelude import prelude
from rewardspec.ops.functions import FUNCTIONS


@dataclass(frozen=True, eq=False)
class Known:
    """A name of the language. kind: scheme, definition, function, given or axis. signature: as a call is written.

    about: one line. definition: of a scheme or definition, its formula.
    """

    name: str
    kind: str
    signature: str
    about: str
    definition: Definition | None = None
    keywords: tuple[str, ...] = ()


_LISTED = {"rollout": "the items of a list in one rollout: `mean(x, over=rollout)` is one value for each rollout"}


@cache
def values() -> Mapping[str, Known]:
    """The schemes and definitions without parameters of the prelude, and the given values."""
    found = {}
    named = {one.name for one in schemes()} - {"total"}
    for name, definition in prelude().values.items():
        kind = "scheme" if name in named else "definition"
        found[name] = Known(name, kind, name, comment_of(definition), definition)
    return found | {name: Known(name, "given", name, about) for name, about in GIVEN.items()}


@cache
def functions() -> Mapping[str, Known]:
    """The functions of the language, and those of the prelude."""
    found = {}
    for name, one in FUNCTIONS.items():
        about = f"{one.about}: `{one.example}`" if one.example else one.about
        found[name] = Known(name, "function", one.signature(name), about, keywords=(*one.keywords,))
    for name, definition in prelude().functions.items():
        signature = definition.signature
        keywords = tuple(parameter for parameter, default in signature.parameters or () if default is not None)
        found[name] = Known(name, "function", signature.span.text, comment_of(definition), definition, keywords)
    return found


@cache
def axes() -> Mapping[str, Known]:
    return {name: Known(name, "axis", name, about) for name, about in (AXES | _LISTED).items()}
