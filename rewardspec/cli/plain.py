"""Texts and paths on the command line, taken without pydantic.

Newer versions of typer check every value with pydantic, which takes 0.15 s to import and to set up. What is no plain
text or path is still left to typer. A typer that works otherwise is left alone: only the time is lost, then.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from typer.core import TyperCommand

from rewardspec.cli.helping import with_words

if TYPE_CHECKING:
    from typer._click import Context


def taken_plainly(params: list[Any]) -> list[Any]:
    """The parameters of a command, whose texts and paths are taken as they are. An older typer does so anyway."""
    for param in params:
        if vars(param).get("_runtime_param", param) is None and hasattr(param, "get_runtime_param"):
            vars(param)["_runtime_param"] = _Plain()
    return params


class PlainCommand(TyperCommand):
    """A command whose texts and paths are taken as they are."""

    def get_params(self, ctx: Context) -> list[Any]:
        return with_words(taken_plainly(super().get_params(ctx)))


class _Plain:
    """In place of typer's own reading of a value, which still reads all that is no plain text or path."""

    def coerce(self, value: Any, param: Any, ctx: Context) -> Any:
        is_many = param.multiple or param.nargs == -1
        if value is None:
            return () if is_many else None
        if type(value) is int and value == param.default:  # nothing was given
            return value
        kind = param.type_descriptor.annotation
        each = get_args(kind)[0] if get_origin(kind) is list else kind
        given = value if is_many else [value]
        if each in (str, Path) and isinstance(given, list | tuple) and all(map(_is_plain, given)):
            found = [each(one) for one in given]
            return found if is_many else found[0]
        return _by_typer(value, param, ctx)


def _is_plain(value: object) -> bool:
    """Whether it is a path, or a text without bytes that could not be decoded."""
    return isinstance(value, Path) or (isinstance(value, str) and value.isprintable())


def _by_typer(value: Any, param: Any, ctx: Context) -> Any:
    param._runtime_param = None  # so that typer makes its own
    return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
