"""What a spec file may hold: the keys of each part, what stands under them, and what they mean.

The reader (`shape.py`) and the JSON schema for editors (`editor.py`) both follow these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewardspec.ops.domain import MOST_VALUES

VERSION = "1"
Schema = Mapping[str, Any]  # a piece of JSON Schema

# Editors are told nothing that refuses what is read here. What YAML takes for null is a text to us, or nothing.
_ANY = ["string", "number", "boolean", "null"]
_EXPRESSION: Schema = {"type": ["string", "number", "boolean"], "pattern": r"\S", "description": "an expression"}
_NUMBER: Schema = {"type": ["number", "string"], "pattern": r"\S", "description": "a number, such as `0.5` or `1/3`"}


@dataclass(frozen=True, eq=False)
class One:
    """A single value, kept as text. `schema`: how editors check it."""

    schema: Schema = field(default_factory=lambda: {"type": _ANY})


@dataclass(frozen=True, eq=False)
class Reason:
    """Why a finding is meant: a text in words."""

    schema: Schema = field(default_factory=lambda: {"type": ["string"], "pattern": r"\S"})


@dataclass(frozen=True, eq=False)
class Choice:
    """One of several words; `default` where none is written."""

    words: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True, eq=False)
class Several:
    """A list of single values, one at least."""

    item: Schema


@dataclass(frozen=True, eq=False)
class Pair:
    """A list of two single values: lowest and highest."""

    item: Schema


@dataclass(frozen=True, eq=False)
class Named:
    """Names of the user's, each with a value of one kind. `limits`: more for editors."""

    each: One | Reason | Part
    limits: Schema = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Free:
    """Options by name, of any kind."""


@dataclass(frozen=True, eq=False)
class Part:
    """A mapping with keys of its own. `short`: the key that a single value in its place stands for."""

    name: str
    about: str
    keys: Mapping[str, Key]
    short: str | None = None
    may_be_empty: bool = True


@dataclass(frozen=True, eq=False)
class Parts:
    """A list of mappings that have keys of their own."""

    each: Part


Kind = One | Reason | Choice | Several | Pair | Named | Free | Part | Parts


@dataclass(frozen=True, eq=False)
class Key:
    """What stands under a key, and what it means. `required`: the part is left out where it is missing."""

    kind: Kind
    about: str
    required: bool = False


_TEXT, _FORMULA, _A_NAME = One(), One(_EXPRESSION), One({"type": ["string"], "pattern": r"\S"})
_FORMULAS = Named(_FORMULA, {"type": ["object", "null"]})
_SHARE: Schema = {**_NUMBER, "minimum": 0, "maximum": 1}
_REASONS = Named(Reason({"type": ["string"], "pattern": r"\S", "description": "why it is meant here"}))

_MEASURED = {
    "about": Key(_TEXT, "what it is"),
    "values": Key(Several({"type": _ANY, "pattern": r"\S"}), "every value it can have: numbers, or names"),
    "range": Key(Pair(_NUMBER), "lowest and highest value; `.inf` for no bound"),
    "level": Key(Choice(("rollout", "group", "batch"), "rollout"), "what there is one value for"),
    "missing": Key(
        Choice(("error", "ignore", "zero"), "error"),
        "what a value that was not measured is: an error, left out, or 0",
    ),
    "outside": Key(
        Choice(("error", "clip"), "error"),
        "what a value outside its domain is: an error, or the nearest one inside",
    ),
    "use": Key(_A_NAME, "a reward function by name, which brings its domain"),
    "with": Key(Free(), "options of the reward function; `only_when`: a condition"),
    "python": Key(_A_NAME, "a reward function of your own: `package.module:function`"),
}

SIGNAL = Part("Measured", "A signal: measured for every rollout (or group, or batch), not rewarded as such.", _MEASURED)

STAGE = Part(
    "Stage",
    "One stage of a staged component: `add` counts once `when` and all before it hold.",
    {
        "add": Key(_FORMULA, "what is added", required=True),
        "when": Key(_FORMULA, "condition, beside those of all stages before"),
    },
    short="add",
)

COMPONENT = Part(
    "Component",
    "What is rewarded: measured, scored by a reward function, or derived (`expr`, `stages`).",
    {
        **_MEASURED,
        "expr": Key(_FORMULA, "the value, where it is derived"),
        "stages": Key(Parts(STAGE), "a list of stages, each with `add` and `when`"),
        "squash": Key(Choice(("sigmoid",)), "what every stage after the first is passed through"),
        "scale": Key(Pair(_EXPRESSION), "new lowest and highest value, affinely"),
        "when": Key(_FORMULA, "the value counts only where this holds"),
        "otherwise": Key(_FORMULA, "the value elsewhere, or `ignore`"),
        "weight": Key(_FORMULA, "a number or expression; below 0 it is a penalty"),
        "allow": Key(_REASONS, "findings that are meant: code and reason"),
    },
    short="expr",
)

NUMERICS = Part(
    "Numerics",
    "`eps` is added to every standard deviation; the divisor is the count less `ddof`.",
    {
        "eps": Key(One(_SHARE), "added to every standard deviation; 1e-6"),
        "ddof": Key(One({"anyOf": [{"enum": [0, 1]}, {"type": "string"}]}), "0 or 1; 1"),  # `2/2` is 1, too
    },
    may_be_empty=False,
)

REWARD_TOKENS = Part(
    "Condition",
    "Reward tokens in the prompt (RC-GRPO): each rollout is told how good it is to be.",
    {
        "tokens": Key(
            Named(One({"type": _ANY, "minLength": 1}), {"minProperties": 2}),
            "name: text of the token; at inference the first is asked for",
            required=True,
        ),
        "prior": Key(
            Named(One(_SHARE)),
            "name: probability that a rollout is given the token; the last has the rest",
            required=True,
        ),
        "label": Key(_FORMULAS, "name: condition under which a trajectory has the token; the last has the rest"),
        "template": Key(
            One({"type": ["string"], "pattern": r"\{token\}"}),
            "text after the prompt, with `{token}` in it",
            required=True,
        ),
    },
)

SPEC = Part(
    "Document",
    "A reward spec.",
    {
        "rewardspec": Key(One({"enum": [int(VERSION), VERSION]}), "the version of the language: 1", required=True),
        "name": Key(_TEXT, "what the spec is called"),
        "about": Key(_TEXT, "what it is for"),
        "source": Key(_TEXT, "where it is from: paper, section, equation"),
        "signals": Key(
            Named(SIGNAL, {"type": ["object", "null"]}), "what is measured for every rollout, not rewarded as such"
        ),
        "components": Key(Named(COMPONENT), "what is rewarded"),
        "outcome": Key(_FORMULA, "condition under which a rollout is right: `correct >= 1`"),
        "define": Key(_FORMULAS, "names, constants and functions: `half(x): 0.5 * x`"),
        "numerics": Key(NUMERICS, "`eps` (1e-6) and `ddof` (1)"),
        "keep": Key(_FORMULA, "condition under which a group stays in the batch"),
        "refill": Key(_FORMULA, "score by which kept groups are drawn for the places of others"),
        "advantage": Key(_FORMULA, "a scheme such as `gdpo`, or any expression"),
        "guarantees": Key(_FORMULAS, "name: condition that must hold in every group"),
        "condition": Key(REWARD_TOKENS, "reward tokens in the prompt"),
        "allow": Key(_REASONS, "findings that are meant: code and reason"),
    },
)


def schema(part: Part) -> dict[str, Any]:
    """A part as JSON Schema; the parts inside it by reference to `$defs`."""
    found = {
        "additionalProperties": False,
        "description": part.about,
        "properties": {name: {**_schema(key.kind), "description": key.about} for name, key in part.keys.items()},
        "type": "object",
    }
    required = [name for name, key in part.keys.items() if key.required]
    return {**found, "required": required} if required else found


def _schema(kind: Kind) -> dict[str, Any]:
    match kind:
        case One(schema=own) | Reason(schema=own):
            return dict(own)
        case Choice(words=(word,)):
            return {"const": word, "type": "string"}
        case Choice(words=words, default=default):
            return {"default": default, "enum": list(words), "type": "string"}
        case Several(item=item):
            return {"items": dict(item), "maxItems": MOST_VALUES, "minItems": 1, "type": "array"}
        case Pair(item=item):
            return {"items": dict(item), "maxItems": 2, "minItems": 2, "type": "array"}
        case Named(each=each, limits=limits):
            return {"type": "object", "additionalProperties": _schema(each), **limits}
        case Free():
            return {"type": ["object", "null"]}
        case Part(name=name):
            return {"$ref": f"#/$defs/{name}"}
        case Parts(each=each):
            return {"items": _schema(each), "minItems": 1, "type": "array"}
