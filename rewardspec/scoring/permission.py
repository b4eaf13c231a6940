"""The permission to import and run user functions (`python:`): it is given by the caller, never by a spec."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rewardspec.rewards.reward import ScoringError
from rewardspec.text.diagnostics import Portable, did_you_mean

Allowed = bool | str | Collection[str]  # True for all functions that a spec names, or modules and `module:function`
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?")


class NotAllowed(Portable, ScoringError):
    """A spec names user functions that the caller has not allowed.

    asked: the functions, `module:function` by column. modules: the modules to allow.
    """

    def __init__(self, name: str, asked: Mapping[str, str]):
        self.asked = dict(asked)
        self.modules = list(dict.fromkeys(path.partition(":")[0] for path in asked.values()))
        named = ", ".join(f"{path} (`{column}`)" for column, path in asked.items())
        self.fact = f"{name} would import and run {named}, which is not allowed"
        fix = f"allow_python={self.modules}, allow_python=True for all functions of the spec, or the functions"
        super().__init__(f"{self.fact}: if you trust it, pass {fix} (functions={{{next(iter(asked))!r}: ...}})")


def read_allowed(allowed: Allowed) -> bool | tuple[str, ...]:
    """True for all functions, False for none, or the names of modules and functions; a text separates them by commas.

    Raises ValueError for anything else.
    """
    if isinstance(allowed, bool | None):
        return bool(allowed)
    names = allowed.split(",") if isinstance(allowed, str) and allowed.strip() else allowed or ()
    names = tuple(name.strip() if isinstance(name, str) else name for name in names)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be allowed: name a module, `my_rewards`, or a function in it, `my_rewards:polite`; "
                "pass function objects as `functions={column: function}`"
            )
    return names


def own_functions(
    name: str, paths: Mapping[str, str], allowed: Allowed, given: Mapping[str, Callable[..., Any]] = {}
) -> dict[str, Callable[..., Any]]:
    """The user functions that a spec names, by column; those in `given` are not imported.

    name: of the spec. paths: `module:function` by column. Raises NotAllowed before anything is imported,
    ScoringError for a function that cannot be imported, or that belongs to a module that is not allowed.
    """
    names = read_allowed(allowed)
    wanted = {column: path for column, path in paths.items() if column not in given}
    refused = {column: path for column, path in wanted.items() if not _covers(names, path)}
    if refused:
        raise NotAllowed(name, refused)
    return {column: _imported(column, path, names) for column, path in wanted.items()} | dict(given)


def _covers(allowed: bool | tuple[str, ...], path: str) -> bool:
    """Whether a function is allowed: by itself, by its module or a package above, or because all are."""
    module = path.partition(":")[0]
    if isinstance(allowed, bool):
        return allowed
    return any(name == path or _within(module, name) for name in allowed)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _imported(column: str, path: str, allowed: bool | tuple[str, ...]) -> Callable[..., Any]:
    module, _, names = path.partition(":")
    try:
        function = importlib.import_module(module)
        for part in names.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise ScoringError(
            f"`python: {path}` of `{column}` cannot be imported: {error}; Python searches the folder where the "
            "program was started, and PYTHONPATH"
        ) from None
    if not callable(function):
        raise ScoringError(f"`python: {path}` of `{column}` is not a function")
    home = getattr(function, "__module__", None) or type(function).__module__
    # an allowed module contains other modules: `my_rewards:os.system` is not a function of `my_rewards`
    if not isinstance(allowed, bool) and path not in allowed and not any(_within(home, name) for name in allowed):
        raise ScoringError(
            f"`python: {path}` of `{column}` is a function of {home}, but only {module} is allowed: "
            f"allow {home}, or {path}"
        )
    return function


def check_given(functions: Mapping[str, Callable[..., Any]], columns: Collection[str], name: str) -> None:
    """Raise ScoringError for functions of columns for which the spec names no function."""
    for column, function in functions.items():
        if column not in columns:
            near = did_you_mean(column, columns, f"there are {', '.join(f'`{c}`' for c in columns)}")
            raise ScoringError(f"functions: {name} names no function for `{column}`; {near}")
        if not callable(function):
            raise ScoringError(f"functions: the value for `{column}` is not a function")
