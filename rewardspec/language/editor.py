"""The JSON Schema of a spec, for editors, and a new spec from a published one."""

from __future__ import annotations

import re
from collections.abc import Collection
from collections.abc import Mapping as Map
from pathlib import Path
from typing import Any

from rewardspec.language.catalogue import comment_of, schemes
from rewardspec.language.columns import NOT_OF_IDS
from rewardspec.language.declarations import MOST_COMPONENTS, NO_LISTS, RESERVED
from rewardspec.language.keys import (
    A_NAME,
    COMPONENT,
    LIST,
    NUMERICS,
    REWARD_TOKENS,
    SIGNAL,
    SPEC,
    STAGE,
    STATE,
    VERSION,
    schema,
)
from rewardspec.language.published import name_of_published, nearest_published, published_files, published_names
from rewardspec.language.state import MOST_STATES
from rewardspec.rewards.catalogue import all_rewards
from rewardspec.syntax.expression import KEYWORDS

Schema = dict[str, Any]  # a piece of JSON Schema

SCHEMA_ID = f"urn:rewardspec:spec:{VERSION}"  # a name, not an address: `rewardspec schema` prints the schema

_TEXT: Schema = {"type": ["string", "number", "boolean"], "pattern": r"\S"}
_OF_A_LIST = {"not": {"enum": ["rollout", "group", "batch"]}}  # the level of a function that returns lists
_WITH = {"anyOf": [{"required": ["use"]}, {"required": ["python"]}]}


def json_schema(findings: Map[str, str], of_spec: Collection[str] = ()) -> Schema:
    """The JSON Schema (draft 2020-12) of a spec, with a description of every key for completion and hover.

    It accepts every spec that `check` accepts, and rejects what a schema can of the rest.
    findings: codes that `allow` takes, with descriptions; of_spec: the codes that no component can allow.
    """
    whole = schema(SPEC)
    keys = whole["properties"]
    named = (REWARD_TOKENS, LIST, SIGNAL, NUMERICS, COMPONENT, STAGE, STATE)
    parts = {part.name: schema(part) for part in named}
    parts["Measured"] |= _measured(["values", "range", "use", "id"], {"id": _without(*NOT_OF_IDS)})
    parts["Component"] |= _measured(["values", "range", "use", "expr", "stages"], _derived())
    own = {code: about for code, about in findings.items() if code not in of_spec}
    for holder, codes in ((keys, findings), (parts["Component"]["properties"], own)):
        holder["allow"] |= {
            "type": ["object", "null"],
            "properties": {
                code: {**holder["allow"]["additionalProperties"], "description": codes[code]} for code in codes
            },
            "additionalProperties": False,
        }
    for section in ("signals", "components", "state"):
        taken = sorted(RESERVED | KEYWORDS)
        keys[section]["propertyNames"] = {"pattern": A_NAME, "not": {"enum": taken}}
    keys["lists"]["propertyNames"] = {"pattern": A_NAME, "not": {"enum": sorted(NO_LISTS | KEYWORDS)}}
    keys["components"] |= {"minProperties": 1, "maxProperties": MOST_COMPONENTS}
    keys["state"] |= {"maxProperties": MOST_STATES}
    parts["State"] |= {"dependentRequired": {"most": ["by"]}}
    whole |= {"required": ["rewardspec", "components", "advantage"], "dependentRequired": {"refill": ["keep"]}}
    for name, short in (
        ("Component", "an expression: short for `{expr: ...}`"),
        ("Stage", "a value: short for `{add: ...}`"),
    ):
        part = parts.pop(name)
        parts[name] = {"anyOf": [part, {**_TEXT, "description": short}], "description": part["description"]}
    keys["advantage"] |= _proposed(
        {one.name: comment_of(one) for one in schemes() if one.name != "total"}, keys["advantage"]
    )
    for part in (parts["Measured"], parts["Component"]["anyOf"][0]):
        use = part["properties"]["use"]
        use |= _proposed({reward.name: reward.about for reward in all_rewards()}, use)
    of_draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": of_draft, "$id": SCHEMA_ID, "title": "rewardspec", "$defs": parts, **whole}


def _proposed(words: Map[str, str], otherwise: Schema) -> Schema:
    """Words that an editor proposes, with descriptions; every other value that fits is allowed as before."""
    known = [{"const": word, "description": about} for word, about in words.items()]
    return {"anyOf": [*known, {key: value for key, value in otherwise.items() if key != "description"}]}


def _measured(sources: list[str], more: dict[str, Schema]) -> Schema:
    """The keys that a measured part requires and excludes, key by key."""
    return {
        "anyOf": [{"required": [source]} for source in sources],
        "dependentSchemas": {
            "values": _without("range"),
            "use": {"properties": {"values": False, "range": False, "python": False, "level": _OF_A_LIST}},
            "python": {"properties": {"level": _OF_A_LIST}},
            "with": _WITH,
            **more,
        },
    }


def _derived() -> dict[str, Schema]:
    """The same for the keys that only a component has."""
    measured = ("values", "level", "missing", "outside", "use", "python", "with")
    return {
        "expr": {**_without("stages", *measured), "dependentRequired": {"range": ["scale"]}},
        "stages": {**_without("expr", *measured), "dependentRequired": {"range": ["scale"]}},
        "otherwise": {"required": ["when"]},
        "squash": {"required": ["stages"]},
    }


def _without(*keys: str) -> Schema:
    return {"properties": {key: False for key in keys}}


def spec_like(name: str, like: str) -> tuple[str, str]:
    """The text of a published spec under another name, and the name that it is published by.

    like: that name, its path under `specs/`, its file name or its `name:`. Raises ValueError, with the choices, if no
    spec or several match.
    """
    found = {}
    for path in published_files():
        place = name_of_published(path)
        text = path.read_text(encoding="utf-8")
        own = re.search(r"^name: (.+)$", text, re.M)
        if like in (place, path.stem, f"{place}.yaml", f"specs/{place}.yaml", own and own[1]):
            found[place] = text
    if len(found) != 1:
        near = None if found else nearest_published(like)
        known = near or ", ".join(found or published_names())
        raise ValueError(f"{'several specs are' if found else 'no spec is'} named {like!r}: {known}")
    ((place, text),) = found.items()
    return re.sub(r"^name: .+$", lambda _: f"name: {name}", text, count=1, flags=re.M), place


def is_name(name: str) -> bool:
    """Whether a text can be the `name:` of a spec, unquoted, and the name of its file."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) is not None and Path(name).name == name
