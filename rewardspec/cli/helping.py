"""What `--help` shows of options and arguments: words for their values, and paragraphs that fit any width."""

from __future__ import annotations

from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args, get_origin

_WORDS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}


def unwrapped(doc: str) -> str:
    """A docstring without the line breaks inside its paragraphs, which a terminal makes by itself."""
    return "\n\n".join(" ".join(part.split("\n")) for part in cleandoc(doc).split("\n\n"))


def with_words(params: list[Any]) -> list[Any]:
    """The parameters of a command, whose help has `N` or `PATH` for their values, and none for flags and arguments.

    Newer versions of typer show the annotation, such as `<int range>` or `<bool>`, which takes the room of the
    description. Older ones are left alone.
    """
    for param in params:
        if getattr(param, "param_type_name", "") == "argument" and param.metavar is None:
            param.metavar = param.name.upper()
        if hasattr(param, "display_type_rich"):
            vars(param)["display_type_rich"] = _fixed(_word(param))
    return params


def _word(param: Any) -> str | None:
    kind = param.type_descriptor.annotation
    if getattr(param, "param_type_name", "") == "argument" or kind is bool:
        return None
    return param.metavar or _WORDS.get(get_args(kind)[0] if get_origin(kind) is list else kind, "")


def _fixed(word: str | None) -> Any:
    return lambda ctx: word
