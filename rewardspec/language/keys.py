"""The keys of each part of a spec file, with the kind of value and the meaning of each.

The reader (`shape.py`) and the JSON schema for editors (`editor.py`) both follow these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewardspec.ops.domain import MOST_VALUES

VERSION = "1"
A_NAME = "^[A-Za-z_][A-Za-z_0-9]*$"
Schema = Mapping[str, Any]  # a piece of JSON Schema

# The schema accepts everything that the reader accepts. YAML's null is a text to the reader, or nothing.
_ANY = ["string", "number", "boolean", "null"]
_EXPRESSION: Schema = {"type": ["string", "number", "boolean"], "pattern": r"\S", "description": "an expression"}
_NUMBER: Schema = {"type": ["number", "string"], "pattern": r"\S", "description": "a number, such as `0.5` or `1/3`"}


@dataclass(frozen=True, eq=False)
class One:
    """A single value, kept as text. `schema`: how editors check it."""

    schema: Schema = field(default_factory=lambda: {"type": _ANY})

    @property
    def is_expression(self) -> bool:
        return self.schema is _EXPRESSION


@dataclass(frozen=True, eq=False)
class Reason:
    """The reason for an allowed finding: a text with words in it."""

    schema: Schema = field(default_factory=lambda: {"type": ["string"], "pattern": r"\S"})


@dataclass(frozen=True, eq=False)
class Choice:
    """One of several words; `default` if the key is absent. or_list: or the name of a list of the spec."""

    words: tuple[str, ...]
    default: str | None = None
    or_list: bool = False


@dataclass(frozen=True, eq=False)
class Several:
    """A list of at least one single value."""

    item: Schema


@dataclass(frozen=True, eq=False)
class Pair:
    """A list of two single values: lowest and highest."""

    item: Schema

    @property
    def is_expression(self) -> bool:
        return self.item is _EXPRESSION


@dataclass(frozen=True, eq=False)
class Named:
    """Names that the user chooses, each with a value of one kind. `limits`: more rules for editors."""

    each: One | Reason | Part
    limits: Schema = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Free:
    """Options by name, of any kind."""


@dataclass(frozen=True, eq=False)
class Part:
    """A mapping with fixed keys. `short`: the key that a single value in place of the mapping sets."""

    name: str
    about: str
    keys: Mapping[str, Key]
    short: str | None = None
    may_be_empty: bool = True


@dataclass(frozen=True, eq=False)
class Parts:
    """A list of mappings with fixed keys."""

    each: Part


Kind = One | Reason | Choice | Several | Pair | Named | Free | Part | Parts


@dataclass(frozen=True, eq=False)
class Key:
    """The kind of value under a key, and its meaning. `required`: without it the part is ignored."""

    kind: Kind
    about: str
    required: bool = False


_TEXT, _FORMULA, _A_NAME = One(), One(_EXPRESSION), One({"type": ["string"], "pattern": r"\S"})
_FORMULAS = Named(_FORMULA, {"type": ["object", "null"]})
_SHARE: Schema = {**_NUMBER, "minimum": 0, "maximum": 1}
_A_REASON = Reason({"type": ["string"], "pattern": r"\S", "description": "the reason for allowing it"})
_REASONS = Named(_A_REASON, {"type": ["object", "null"]})

_MEASURED = {
    "about": Key(_TEXT, "a description"),
    "values": Key(Several({"type": _ANY, "pattern": r"\S"}), "every value it can have: numbers, or names"),
    "range": Key(Pair(_NUMBER), "lowest and highest value; `.inf` for no bound"),
    "level": Key(
        Choice(("rollout", "group", "batch"), "rollout", or_list=True),
        "one value for each rollout, group or batch, or for each item of a list",
    ),
    "missing": Key(
        Choice(("error", "ignore", "zero"), "error"),
        "a missing value is an error, ignored, or 0",
    ),
    "outside": Key(
        Choice(("error", "clip"), "error"),
        "a value outside its domain is an error, or clipped to the nearest value inside",
    ),
    "use": Key(_A_NAME, "a reward function by name; it sets the domain"),
    "with": Key(Free(), "options of the reward function; `only_when`: a condition"),
    "python": Key(_A_NAME, "your own reward function: `package.module:function`"),
}

SIGNAL = Part(
    "Measured",
    "A signal: measured for every rollout, group or batch, and not rewarded itself.",
    {**_MEASURED, "id": Key(Choice(("true",)), "its values are ids: any hashable values, which are equal or not")},
)

LIST = Part(
    "List",
    "A list inside every rollout: turns, tool calls, criteria of a rubric. Columns of `level: NAME` hold its items.",
    {
        "ordered": Key(Choice(("true", "false"), "false"), "whether items follow each other, as turns do"),
        "about": Key(_TEXT, "a description"),
    },
)

STAGE = Part(
    "Stage",
    "One stage of a component: `add` counts if `when` and those of all earlier stages are true.",
    {
        "add": Key(_FORMULA, "the value that the stage adds", required=True),
        "when": Key(_FORMULA, "condition, in addition to those of all earlier stages"),
    },
    short="add",
)

COMPONENT = Part(
    "Component",
    "A reward: measured, scored by a reward function, or derived (`expr`, `stages`).",
    {
        **_MEASURED,
        "expr": Key(_FORMULA, "the value of a derived component"),
        "stages": Key(Parts(STAGE), "a list of stages, each with `add` and `when`"),
        "squash": Key(Choice(("sigmoid",)), "the function applied to every stage after the first"),
        "scale": Key(Pair(_EXPRESSION), "new lowest and highest value (an affine map)"),
        "when": Key(_FORMULA, "the gate: the value counts only where this is true"),
        "otherwise": Key(_FORMULA, "the value where the gate is closed, or `ignore`"),
        "weight": Key(_FORMULA, "a number or expression; a negative weight is a penalty"),
        "allow": Key(_REASONS, "allowed findings: code and reason"),
    },
    short="expr",
)

STATE = Part(
    "State",
    "A value that is carried from batch to batch; its name is the value before the batch.",
    {
        "about": Key(_TEXT, "a description"),
        "init": Key(One(_NUMBER), "the value before the first batch, or of a new key", required=True),
        "range": Key(
            Pair(_NUMBER), "lowest and highest value, to which it is held; `.inf` for no bound", required=True
        ),
        "update": Key(_FORMULA, "the value after the batch", required=True),
        "by": Key(_A_NAME, "a signal of group level with `id: true`: one value for each id"),
        "most": Key(One({"type": ["integer", "string"], "minimum": 1}), "the most keys that are kept (default 100000)"),
    },
    may_be_empty=False,
)

NUMERICS = Part(
    "Numerics",
    "`eps` is added to every standard deviation; a variance is divided by the count minus `ddof`.",
    {
        "eps": Key(One(_SHARE), "added to every standard deviation (default 1e-6)"),
        "ddof": Key(One({"anyOf": [{"enum": [0, 1]}, {"type": "string"}]}), "0 or 1 (default 1)"),  # `2/2` is 1, too
    },
    may_be_empty=False,
)

REWARD_TOKENS = Part(
    "Condition",
    "Reward tokens in the prompt (RC-GRPO): each token requests a quality of answer.",
    {
        "tokens": Key(
            Named(One({"type": _ANY, "minLength": 1}), {"minProperties": 2}),
            "name: text of the token; at inference the first is used",
            required=True,
        ),
        "prior": Key(
            Named(One(_SHARE)),
            "name: probability that a rollout gets the token; the last token gets the rest",
            required=True,
        ),
        "label": Key(
            _FORMULAS, "name: condition under which a trajectory gets the token; the last token gets the rest"
        ),
        "template": Key(
            One({"type": ["string"], "pattern": r"\{token\}"}),
            "text after the prompt, containing `{token}`",
            required=True,
        ),
    },
)

SPEC = Part(
    "Document",
    "A reward spec.",
    {
        "rewardspec": Key(One({"enum": [int(VERSION), VERSION]}), "the version of the language: 1", required=True),
        "name": Key(_TEXT, "the name of the spec"),
        "about": Key(_TEXT, "the purpose of the spec"),
        "source": Key(_TEXT, "its source: paper, section, equation"),
        "lists": Key(Named(LIST, {"type": ["object", "null"]}), "lists inside every rollout, by name"),
        "signals": Key(Named(SIGNAL, {"type": ["object", "null"]}), "measured inputs that are not rewarded themselves"),
        "components": Key(Named(COMPONENT), "the rewards, by name"),
        "state": Key(Named(STATE, {"type": ["object", "null"]}), "values that are carried from batch to batch"),
        "outcome": Key(_FORMULA, "condition under which a rollout is right: `correct >= 1`"),
        "define": Key(_FORMULAS, "your own constants and functions: `half(x): 0.5 * x`"),
        "numerics": Key(NUMERICS, "`eps` (1e-6) and `ddof` (1)"),
        "keep": Key(_FORMULA, "condition under which a group stays in the batch"),
        "refill": Key(_FORMULA, "score by which kept groups are drawn to replace the dropped ones"),
        "advantage": Key(_FORMULA, "a scheme such as `gdpo`, or any expression"),
        "guarantees": Key(_FORMULAS, "name: condition that must be true in every group"),
        "condition": Key(REWARD_TOKENS, "reward tokens in the prompt"),
        "allow": Key(_REASONS, "allowed findings: code and reason"),
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
        case Choice(words=("true",)):
            return {"enum": [True, "true"]}
        case Choice(words=(word,)):
            return {"const": word, "type": "string"}
        case Choice(words=("true", "false"), default=default):  # YAML's own words for it
            return {"default": default == "true", "enum": [True, False, "true", "false"]}
        case Choice(words=words, default=default, or_list=True):
            a_list = {"type": "string", "pattern": A_NAME, "description": "a list of the spec"}
            return {"anyOf": [{"default": default, "enum": list(words), "type": "string"}, a_list]}
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
