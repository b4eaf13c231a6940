"""The shape of a spec file: which keys there are and what kind of thing each holds.

Values stay text with its place (`Scalar`); numbers and expressions are read where they are used.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from rewardspec.ops.domain import MOST_VALUES
from rewardspec.syntax.foreign import KEYS, PART_KEYS, WORDS, way_out
from rewardspec.syntax.yaml import Mapping, Node, Scalar, Sequence, read_yaml
from rewardspec.text.diagnostics import Report, shorten
from rewardspec.text.source import Source, Span

VERSION = "1"


def _text(value: Any) -> Scalar:
    if isinstance(value, Scalar):
        return value
    raise PydanticCustomError("wrong_type", "a single value belongs here, not a list or a mapping")


def _choice(*words: str):
    def check(value: Any) -> Any:
        scalar = _text(value)
        if scalar.text not in words:
            raise PydanticCustomError("choice", "{text}", {"text": shorten(scalar.text), "words": list(words)})
        return scalar.text

    return BeforeValidator(check)


def _pair(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 2:
        raise PydanticCustomError("pair", "two values belong here: `[lowest, highest]`")
    return value


def _listed(value: Any) -> Any:
    if not isinstance(value, list):
        raise PydanticCustomError("list", "a list belongs here: `[0, 1]`")
    if not value:
        raise PydanticCustomError("list", "an empty list: nothing could ever be measured")
    return value


def _mapped(value: Any) -> Any:
    if isinstance(value, Scalar) and value.style is None and not value.text:
        return {}
    if not isinstance(value, dict):
        raise PydanticCustomError("mapping", "names and their values belong here, one `name: value` a line")
    return value


def _reason(value: Any) -> Scalar:
    """Why a finding is meant, in words: a text with a letter in it, and not one that YAML takes for something else."""
    scalar = _text(value)
    text = scalar.text.strip()
    plain = scalar.style is None and (NOT_TEXT.fullmatch(text) is not None or text.lower() in NOT_WORDS)
    if plain or not any(char.isalpha() for char in text):
        raise PydanticCustomError("reason", "no reason")
    return scalar


NOT_TEXT = re.compile(r"[-+]?(\.?[0-9][0-9_.]*(e[-+]?[0-9]+)?|0x[0-9a-f_]+|0o[0-7_]+|\.inf|\.nan)", re.IGNORECASE)
NOT_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


def _schema(kinds: list[str], about: str, **limits):
    return WithJsonSchema({"type": kinds, **limits, "description": about})


# What editors are told never refuses what is read here; a value that YAML takes for null is a text to us, or nothing.
_ANY = ["string", "number", "boolean", "null"]
_EXPRESSION = {"type": ["string", "number", "boolean"], "pattern": r"\S", "description": "an expression"}
_NUMBER = {"type": ["number", "string"], "pattern": r"\S", "description": "a number, such as `0.5` or `1/3`"}
_NAMES_OF_EXPRESSIONS = {"type": ["object", "null"], "additionalProperties": _EXPRESSION}

Text = Annotated[Any, BeforeValidator(_text), _schema(_ANY, "text")]
Expression = Annotated[Any, BeforeValidator(_text), WithJsonSchema(_EXPRESSION)]
Literals = Annotated[
    list[Text],
    BeforeValidator(_listed),
    WithJsonSchema(
        {"type": "array", "items": {"type": _ANY, "pattern": r"\S"}, "minItems": 1, "maxItems": MOST_VALUES}
    ),
]
Pair = Annotated[
    list[Expression],
    BeforeValidator(_pair),
    WithJsonSchema({"type": "array", "items": _EXPRESSION, "minItems": 2, "maxItems": 2}),
]
Ends = Annotated[
    list[Text],
    BeforeValidator(_pair),
    WithJsonSchema({"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}),
]
Expressions = Annotated[dict[str, Expression], BeforeValidator(_mapped), WithJsonSchema(_NAMES_OF_EXPRESSIONS)]
Named = Annotated[Any, BeforeValidator(_text), _schema(["string"], "a name", pattern=r"\S")]
Tokens = Annotated[
    dict[str, Text],
    BeforeValidator(_mapped),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": _ANY, "minLength": 1}, "minProperties": 2}),
]
Shares = Annotated[
    dict[str, Text],
    BeforeValidator(_mapped),
    WithJsonSchema({"type": "object", "additionalProperties": {**_NUMBER, "minimum": 0, "maximum": 1}}),
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


Reason = Annotated[Any, BeforeValidator(_reason), _schema(["string"], "why it is meant here", pattern=r"\S")]
Reasons = Annotated[dict[str, Reason], BeforeValidator(_mapped)]


Options = Annotated[
    dict[str, Any],
    BeforeValidator(_mapped),
    WithJsonSchema({"type": ["object", "null"], "description": "options by name"}),
]


class Measured(_Part):
    """A signal: measured for every rollout (or group, or batch), not rewarded as such."""

    about: Text | None = Field(None, description="what it is")
    values: Literals | None = Field(None, description="every value it can have: numbers, or names")
    range: Ends | None = Field(None, description="lowest and highest value; `.inf` for no bound")
    level: Annotated[Literal["rollout", "group", "batch"], _choice("rollout", "group", "batch")] = Field(
        "rollout", description="what there is one value for"
    )
    missing: Annotated[Literal["error", "ignore", "zero"], _choice("error", "ignore", "zero")] = Field(
        "error", description="what a value that was not measured is: an error, left out, or 0"
    )
    outside: Annotated[Literal["error", "clip"], _choice("error", "clip")] = Field(
        "error", description="what a value outside its domain is: an error, or the nearest one inside"
    )
    use: Named | None = Field(None, description="a reward function by name, which brings its domain")
    with_: Options = Field({}, alias="with", description="options of the reward function; `only_when`: a condition")
    python: Named | None = Field(None, description="a reward function of your own: `package.module:function`")

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        return _mapped(value)


class Stage(_Part):
    """One stage of a staged component: `add` counts once `when` and all before it hold."""

    add: Expression = Field(description="what is added")
    when: Expression | None = Field(None, description="condition, beside those of all stages before")

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        return {"add": value} if isinstance(value, Scalar) else _mapped(value)


class Component(Measured):
    """What is rewarded: measured, scored by a reward function, or derived (`expr`, `stages`)."""

    expr: Expression | None = Field(None, description="the value, where it is derived")
    stages: list[Stage] | None = Field(None, description="a list of stages, each with `add` and `when`")
    squash: Annotated[Literal["sigmoid"], _choice("sigmoid")] | None = Field(
        None, description="what every stage after the first is passed through"
    )
    scale: Pair | None = Field(None, description="new lowest and highest value, affinely")
    when: Expression | None = Field(None, description="the value counts only where this holds")
    otherwise: Expression | None = Field(None, description="the value elsewhere, or `ignore`")
    weight: Expression | None = Field(None, description="a number or expression; below 0 it is a penalty")
    allow: Reasons = Field({}, description="findings that are meant: code and reason")

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        if isinstance(value, Scalar) and (value.text or value.style):
            return {"expr": value}
        return _mapped(value)


_DIVISOR = {"anyOf": [{"enum": [0, 1]}, {"type": "string"}]}  # `2/2` is 1, too


class Numerics(_Part):
    """`eps` is added to every standard deviation; the divisor is the count less `ddof`."""

    eps: Annotated[Any, BeforeValidator(_text), WithJsonSchema({**_NUMBER, "minimum": 0, "maximum": 1})] = Field(
        None, description="added to every standard deviation; 1e-6"
    )
    ddof: Annotated[Any, BeforeValidator(_text), WithJsonSchema(_DIVISOR)] = Field(None, description="0 or 1; 1")


class Condition(_Part):
    """Reward tokens in the prompt (RC-GRPO): each rollout is told how good it is to be."""

    tokens: Tokens = Field(description="name: text of the token; at inference the first is asked for")
    prior: Shares = Field(description="name: probability that a rollout is given the token; the last has the rest")
    label: Expressions = Field(
        {}, description="name: condition under which a trajectory has the token; the last has the rest"
    )
    template: Annotated[Any, BeforeValidator(_text), _schema(["string"], "text", pattern=r"\{token\}")] = Field(
        description="text after the prompt, with `{token}` in it"
    )

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        return _mapped(value)


Signals = Annotated[dict[str, Measured], BeforeValidator(_mapped)]
Components = Annotated[dict[str, Component], BeforeValidator(_mapped)]


class Document(_Part):
    """A reward spec."""

    rewardspec: Annotated[Any, BeforeValidator(_text), WithJsonSchema({"enum": [int(VERSION), VERSION]})] = Field(
        description="the version of the language: 1"
    )
    name: Text | None = Field(None, description="what the spec is called")
    about: Text | None = Field(None, description="what it is for")
    source: Text | None = Field(None, description="where it is from: paper, section, equation")
    signals: Signals = Field({}, description="what is measured for every rollout, not rewarded as such")
    components: Components = Field({}, description="what is rewarded")
    outcome: Expression | None = Field(None, description="condition under which a rollout is right: `correct >= 1`")
    define: Expressions = Field({}, description="names, constants and functions: `half(x): 0.5 * x`")
    numerics: Numerics = Field(Numerics(), description="`eps` (1e-6) and `ddof` (1)")
    keep: Expression | None = Field(None, description="condition under which a group stays in the batch")
    refill: Expression | None = Field(None, description="score by which kept groups are drawn for the places of others")
    advantage: Expression | None = Field(None, description="a scheme such as `gdpo`, or any expression")
    guarantees: Expressions = Field({}, description="name: condition that must hold in every group")
    condition: Condition | None = Field(None, description="reward tokens in the prompt")
    allow: Reasons = Field({}, description="findings that are meant: code and reason")


def read_document(source: Source, report: Report) -> tuple[Document, Mapping] | None:
    """The document of a file and its nodes; None where it has no usable shape (reasons in `report`).

    A part that is wrong is reported and left out, so that what stands beside it is still checked.
    """
    root = read_yaml(source, report)
    if root is None:
        return None
    data = _plain(root)
    for _ in range(100):  # each round drops what is wrong and tries the rest
        try:
            return Document.model_validate(data), root
        except ValidationError as errors:
            for error in errors.errors():
                _report(error, root, report)
            for error in errors.errors():
                _drop(data, error["loc"])
            if "rewardspec" not in data:
                data["rewardspec"] = Scalar(Span(source, 0, 0), VERSION)
    return None


def _plain(node: Node) -> Any:
    match node:
        case Mapping():
            return {key.text: _plain(value) for key, value in node.items}
        case Sequence():
            return [_plain(item) for item in node.items]
    return node


def _drop(data: Any, loc: tuple) -> None:
    """Take what is wrong out of `data`: the deepest part of `loc` that can go without its parent."""
    parents = [data]
    for part in loc:
        inner = parents[-1]
        if (isinstance(inner, dict) and part in inner) or (
            isinstance(inner, list) and isinstance(part, int) and part < len(inner)
        ):
            parents.append(inner[part])
        else:
            break
    depth = len(parents) - 1
    if depth < len(loc) and depth > 0 and not isinstance(parents[depth], Scalar):
        depth += loc[depth] == "add"  # a missing key: its parent goes
    for at in range(min(depth, len(parents) - 1), 0, -1):
        holder, part = parents[at - 1], loc[at - 1]
        if isinstance(holder, dict):
            del holder[part]
            return
        if at == 1 or not isinstance(parents[at - 2], dict):
            continue
    if not loc:
        data.clear()


def _report(error: ErrorDetails, root: Mapping, report: Report) -> None:
    node, key = _place(root, error["loc"])
    kind, name = error["type"], str(error["loc"][-1])
    match kind:
        case "extra_forbidden":
            known = _known_keys(error["loc"])
            foreign = (
                KEYS if len(error["loc"]) == 1 else PART_KEYS if error["loc"][0] in ("signals", "components") else {}
            )
            report.error(
                "unknown-key",
                f"there is no key `{shorten(name)}` here",
                key.span if key else node.span,
                help=way_out(name, known, foreign, f"the keys here are {', '.join(known)}"),
            )
        case "missing" if name == "rewardspec":
            report.error(
                "version",
                "the spec does not say which version of the language it is in",
                _start(root),
                help="begin with `rewardspec: 1`",
            )
        case "missing":
            report.error("missing-key", f"`{name}` is missing here", _start(node))
        case "choice":
            words = error["ctx"]["words"]
            report.error(
                "unknown-word",
                f"`{error['ctx']['text']}` is none of {', '.join(f'`{w}`' for w in words)}",
                node.span,
                help=_word_here(error["ctx"]["text"], str(error["loc"][-1]), words),
            )
        case "reason":
            report.error(
                "no-reason",
                f"nothing says why `{shorten(name)}` is meant here",
                node.span if node.span.text.strip() else key.span,
                help=f"say it in words: `{shorten(name)}: why`",
            )
        case "list_type":
            report.error("wrong-type", "a list belongs here, one `- ` a line", node.span)
        case _:
            report.error("wrong-type", error["msg"], node.span if node.span.text.strip() else key.span)


def _word_here(text: str, key: str, words: list[str]) -> str | None:
    """A help line for a word that a key does not take; what is written for it elsewhere, if that is for this key."""
    here = {word: answer for word, answer in WORDS.items() if f"`{key}:" in answer}
    return way_out(text, words, here)


def _start(node: Node) -> Span:
    start = node.span.start
    end = node.span.source.text.find("\n", start)
    return node.span.source.span(start, min(end if end >= 0 else node.span.end, node.span.end))


def _place(root: Mapping, loc: tuple) -> tuple[Node, Scalar | None]:
    """The deepest node that `loc` names, and the key it stands under."""
    node: Node = root
    key = None
    for part in loc:
        if isinstance(node, Mapping) and isinstance(part, str) and node.get(part) is not None:
            key, node = node.key(part), node.get(part)
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
        else:
            break
    return node, key


def _known_keys(loc: tuple) -> list[str]:
    match loc:
        case (_,):
            model = Document
        case ("signals", *_):
            model = Measured
        case ("components", _, "stages", *_):
            model = Stage
        case ("components", *_):
            model = Component
        case ("condition", *_):
            model = Condition
        case _:
            model = Numerics
    return [field.alias or name for name, field in model.model_fields.items()]
