"""For editors and habits: the JSON Schema of a spec, and a new spec from a published one."""

from __future__ import annotations

import re
from pathlib import Path

from rewardspec.analysis.catalogue import shipped_specs
from rewardspec.resources import resource
from rewardspec.spec.document import Document

_TEXT = {"type": ["string", "number", "boolean"]}


def json_schema() -> dict:
    """The JSON Schema (draft 2020-12) of a spec, with what every key means, for completion and hover."""
    schema = _plain(Document.model_json_schema())
    parts = schema["$defs"]
    for name, short in (("Component", "an expression: short for `{expr: ...}`"), ("Stage", "what is added, at once")):
        whole = parts.pop(name)
        parts[name] = {"anyOf": [whole, {**_TEXT, "description": short}], "description": whole.get("description", "")}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "rewardspec", **schema}


def _plain(node):
    """Without what pydantic says of its own: titles, nulls for what is not there, defaults that are null."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {k: _plain(v) for k, v in node.items() if not (k == "title" and isinstance(v, str)) and v is not None}
    choices = [choice for choice in found.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        found.pop("anyOf")
        found = {**choices[0], **found}
    if "properties" in node:  # a key can be called `title`
        found["properties"] = {k: _plain(v) for k, v in node["properties"].items()}
    return found


def spec_like(name: str, like: str) -> str:
    """The text of a published spec under another name.

    like: its path under `specs/`, its name, or the end of either. Raises ValueError, with all that would
    do, where there is none or several.
    """
    found = {}
    for path in shipped_specs():
        place = path.relative_to(resource("specs")).with_suffix("").as_posix()
        text = path.read_text(encoding="utf-8")
        own = re.search(r"^name: (.+)$", text, re.M)
        if like in (place, path.stem, f"{place}.yaml", own and own[1]):
            found[place] = (path, text)
    if len(found) != 1:
        known = ", ".join(found) or ", ".join(
            p.relative_to(resource("specs")).with_suffix("").as_posix() for p in shipped_specs()
        )
        raise ValueError(f"{'several specs are' if found else 'no spec is'} called {like!r}: {known}")
    ((_, text),) = found.values()
    return re.sub(r"^name: .+$", lambda _: f"name: {name}", text, count=1, flags=re.M)


def is_name(name: str) -> bool:
    """Whether a text can stand after `name:` as it is, and be the name of a file."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) is not None and Path(name).name == name
