"""Pages of the papers' reward functions, from their docstrings and signatures."""

from __future__ import annotations

import inspect
import re
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from rewardspec.language.published import name_of_published, published_files
from rewardspec.manual.page import Kind, Page, fenced, paragraphs, sentence, table
from rewardspec.rewards.catalogue import all_rewards, find_reward
from rewardspec.rewards.reward import Reward, Within

MALFORMED = "A ground truth that cannot be read raises `BadReference`; `score` reports its row, and goes on."


def _reward(name: str) -> Page:
    found = find_reward(name)
    assert found is not None, name
    first, _, rest = (inspect.getdoc(found.function) or "").partition("\n")
    required = [option for option, default in found.defaults.items() if default is inspect.Parameter.empty]
    options = f", with: {{{', '.join(f'{option}: ...' for option in required)}}}" if required else ""
    reads = ", ".join(f"`{column}`{' (may be absent)' * (column in found.optional)}" for column in found.inputs)
    body = paragraphs(
        first,
        fenced(f"components:\n  {name.partition('.')[2]}: {{use: {name}{options}}}"),
        _described(found, rest),
        f"It reads {reads}. {_domain(found)}",
        found.expression and f"In the language it is `{found.expression}`.",
        table(("option", "type", "default"), _options(found)),
    )
    return Page("reward", name, body, tuple(("spec", spec) for spec in _specs_of(name)))


def _described(found: Reward, text: str) -> str:
    """The rest of a docstring, with a line of a list for each parameter, and paragraphs for the source and the rest."""
    names = "|".join({*found.inputs, *found.defaults, *inspect.signature(found.function).parameters})
    those = rf"(?:{names})(?:, (?:{names}))*: "
    begins = re.compile(rf"(?:^|(?<=[.;] ))(?={those}|Source: |None |Raises )")
    lines = [""]
    for paragraph in text.strip().split("\n\n"):
        for part in filter(None, begins.split(" ".join(paragraph.split()))):
            if re.match(those, part):
                of, _, about = part.partition(": ")
                lines.append(f"- {', '.join(f'`{name}`' for name in of.split(', '))}: {sentence(about.strip(' ;'))}")
            else:
                lines += ["", part.strip(), ""]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).replace("Raises BadReference.", MALFORMED)


def _domain(found: Reward) -> str:
    if inspect.Parameter.empty in found.defaults.values() or found.items:
        return "Its domain depends on its options."
    return f"Its domain is {found.domain(**found.defaults)}" + (", without options." if found.defaults else ".")


def _options(found: Reward) -> list[tuple[str, str, str]]:
    parameters = inspect.signature(found.function, eval_str=True).parameters.values()
    rows = []
    for option in (p for p in parameters if p.kind is p.KEYWORD_ONLY):
        default = "required" if option.default is option.empty else f"`{option.default}`"
        rows.append((f"`{option.name}`", _type(option.annotation), default))
    return rows


def _type(annotation: Any) -> str:
    """An annotation in words: `fine or coarse`, `number, from 0 to 1`, `whole number or none`."""
    origin, of = get_origin(annotation), get_args(annotation)
    if annotation in (NoneType, None):
        return "none"
    if origin is Annotated:
        bounds = [bound for note in of[1:] for bound in _bounds(note)]
        return ", ".join([_type(of[0]), *bounds])
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in of)
    if origin in (Union, UnionType):
        return " or ".join(map(_type, of))
    if origin is tuple:
        return f"list of {_type(of[0])}"
    return "mapping" if origin is dict else _WORDS.get(annotation, str(getattr(annotation, "__name__", annotation)))


_WORDS = {float: "number", int: "whole number", str: "text", bool: "true or false"}


def _bounds(note: Any) -> list[str]:
    """The limits of an option: those of `Within`, or of pydantic."""
    limits = note.limits if isinstance(note, Within) else {}
    for one in getattr(note, "metadata", ()):
        limits = {**limits, **{key: getattr(one, key) for key in _SIGNS if hasattr(one, key)}}
    said = {
        key: f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"
        for key, value in limits.items()
        if key in _SIGNS
    }
    if said.keys() >= {"ge", "le"}:
        return [f"from {said['ge']} to {said['le']}"]
    return [f"{_SIGNS[key]} {value}" for key, value in said.items()]


_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def _specs_of(name: str) -> list[str]:
    """The published specs that use a reward function."""
    wanted = re.compile(rf"\buse: {re.escape(name)}\b")
    return [name_of_published(p) for p in published_files() if wanted.search(p.read_text(encoding="utf-8"))]


REWARDS = Kind(
    "reward", "the papers' reward functions, as `use:` names them", lambda: [r.name for r in all_rewards()], _reward
)
