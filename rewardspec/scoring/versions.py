"""The identity of reward functions: rewards of two versions of a function must not be mixed."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from rewardspec import rewards
from rewardspec._version import __version__
from rewardspec.language.declarations import Use

PLAIN = (str, bytes, int, float, bool, type(None))


def versions(uses: Mapping[str, Use], own: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    """For each column its function, options, and a hash of the source code if there is one.

    own: the user's functions, by column. A user function changes with its file; modules that the file imports do not
    count. A judge changes with the endpoint in the environment.
    """
    return {
        name: f"{use} [{_of_file(own[name]) if name in own else of_ours()}]{endpoint(use)}"
        for name, use in uses.items()
    }


def endpoint(use: Use) -> str:
    """The endpoint in the environment, if the function is a judge that asks it."""
    if use.reward is None or not use.reward.name.startswith("judge.") or use.options.get("url"):
        return ""
    return f" at {_digest(os.environ.get('OPENAI_BASE_URL', '').encode())}"


def of_ours() -> str:
    """The version of our reward functions."""
    return f"rewardspec {__version__} {_of_our_files()}"


def of_function(function: Callable[..., Any]) -> str:
    """A user function's own `version` if it has one, else a hash of its source.

    The source is the function's, and that of all functions, classes and constants of its module that it names. Where
    that cannot be told, as of a closure or an object, it is the whole file.
    """
    stated = getattr(function, "version", None)
    if isinstance(stated, str | int | float):
        return f"version {stated}"
    try:
        return _digest("\n".join(_sources(function, {})).encode())
    except (TypeError, OSError, _Unclear):
        return _of_file(function)


class _Unclear(Exception):
    """What a function reads of its module is not in a text."""


def _sources(function: object, seen: dict[object, str]) -> list[str]:
    """The source of a function, and of what it names in its module."""
    if not isinstance(function, FunctionType) or function.__closure__ or hasattr(function, "__wrapped__"):
        raise _Unclear
    defaults = _plainly([function.__defaults__, function.__kwdefaults__])  # the source may only name them
    code = _compiled(function.__code__)  # the file may have been edited since it was imported
    seen[function] = f"{function.__qualname__}: {inspect.getsource(function)}{defaults}{code}"
    for name in sorted(_names(function.__code__)):
        if name in seen or name not in function.__globals__:
            continue
        held = function.__globals__[name]
        if isinstance(held, PLAIN):
            seen[name] = f"{name}: {held!r}"
        elif isinstance(held, ModuleType) or getattr(held, "__module__", None) != function.__module__:
            if not isinstance(held, ModuleType | type | FunctionType | BuiltinFunctionType):
                raise _Unclear  # a table, a model
        elif isinstance(held, FunctionType):
            seen[name] = f"{name}: {held.__qualname__}"
            if held not in seen:
                _sources(held, seen)
        else:
            raise _Unclear  # a class, whose bases and methods name more
    return sorted(seen.values())


def _plainly(value: object) -> str:
    """A text of a constant, or of lists of constants. Raises _Unclear for anything else."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_plainly, value))}]"
    if isinstance(value, dict):
        return _plainly([*value.items()])
    raise _Unclear


def _compiled(code: CodeType) -> str:
    """What code does, without where it stands."""
    held = [_compiled(one) if isinstance(one, CodeType) else one for one in code.co_consts]
    constants = [sorted(map(repr, one)) if isinstance(one, frozenset) else repr(one) for one in held]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _names(code: CodeType) -> set[str]:
    """The names that code reads, with those of the functions in it."""
    inner = [_names(const) for const in code.co_consts if isinstance(const, CodeType)]
    return {*code.co_names}.union(*inner)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


@cache
def _of_our_files() -> str:
    """A hash of our reward functions, all together because they share code, and of the scorer."""
    files = [Path(__file__).with_name("scorer.py"), *sorted(Path(rewards.__file__).parent.rglob("*.py"))]
    return _digest(b"".join(path.read_bytes() for path in files))


def _of_file(function: Callable[..., Any]) -> str:
    """A hash of the file of a function; the version of its module if it has no file."""
    home = inspect.unwrap(function) if hasattr(function, "__wrapped__") else function
    kind = home if hasattr(home, "__code__") else getattr(home, "__func__", type(home))
    try:
        return _digest(Path(inspect.getsourcefile(kind) or "").read_bytes())
    except (TypeError, OSError):
        module = import_module((getattr(home, "__module__", None) or "builtins").partition(".")[0])
        return str(getattr(module, "__version__", "no source"))
