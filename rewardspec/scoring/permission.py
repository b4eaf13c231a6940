"""Which functions of the user's own (`python:`) may be imported and run: a decision that no spec can take."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rewardspec.rewards.reward import ScoringError
from rewardspec.text.diagnostics import Portable, did_you_mean

Allowed = bool | str | Collection[str]  # True for all that a spec names, or modules and `module:function`
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?")


class NotAllowed(Portable, ScoringError):
    """A spec names functions to be imported, and nobody has allowed it.

    asked: what would be imported, `module:function` by column. modules: what to allow, so that they are.
    """

    def __init__(self, name: str, asked: Mapping[str, str]):
        self.asked = dict(asked)
        self.modules = list(dict.fromkeys(path.partition(":")[0] for path in asked.values()))
        named = ", ".join(f"{path} (`{column}`)" for column, path in asked.items())
        self.fact = f"{name} would import and run {named}, which was not allowed"
        way_out = (
            f"allow_python={self.modules}, allow_python=True for all that the spec names, or the functions themselves"
        )
        super().__init__(f"{self.fact}: if you trust it, pass {way_out} (functions={{{next(iter(asked))!r}: ...}})")


def read_allowed(allowed: Allowed) -> bool | tuple[str, ...]:
    """What is allowed: all, or the names of modules and functions. A text holds them separated by commas.

    Raises ValueError for anything else.
    """
    if isinstance(allowed, bool | None):
        return bool(allowed)
    names = allowed.split(",") if isinstance(allowed, str) and allowed.strip() else allowed or ()
    names = tuple(name.strip() if isinstance(name, str) else name for name in names)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be allowed: it is a module such as `my_rewards`, or `my_rewards:polite`; "
                "functions themselves are passed as `functions={column: function}`"
            )
    return names


def own_functions(
    name: str, paths: Mapping[str, str], allowed: Allowed, given: Mapping[str, Callable[..., Any]] = {}
) -> dict[str, Callable[..., Any]]:
    """The functions of the user's own that a spec names, by column; those that are given are not imported.

    name: of the spec. paths: `module:function` by column. Raises NotAllowed before anything is imported,
    ScoringError for what cannot be imported or is not what was allowed.
    """
    names = read_allowed(allowed)
    wanted = {column: path for column, path in paths.items() if column not in given}
    refused = {column: path for column, path in wanted.items() if not _covers(names, path)}
    if refused:
        raise NotAllowed(name, refused)
    return {column: _imported(column, path, names) for column, path in wanted.items()} | dict(given)


def _covers(allowed: bool | tuple[str, ...], path: str) -> bool:
    """Whether a function is allowed: all are, or it, its module, or a package that this is in."""
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
            f"`python: {path}` of `{column}` cannot be imported: {error}; Python looks for it where the "
            "program was started and on PYTHONPATH"
        ) from None
    if not callable(function):
        raise ScoringError(f"`python: {path}` of `{column}` is no function")
    home = getattr(function, "__module__", None) or type(function).__module__
    # an allowed module has others in it: `my_rewards:os.system` is not a function of `my_rewards`
    if not isinstance(allowed, bool) and path not in allowed and not any(_within(home, name) for name in allowed):
        raise ScoringError(
            f"`python: {path}` of `{column}` is a function of {home}, and {module} alone was allowed: "
            f"allow {home}, or {path} itself"
        )
    return function


def check_given(functions: Mapping[str, Callable[..., Any]], columns: Collection[str], name: str) -> None:
    """Raise ScoringError for functions that are given for columns that the spec measures by none."""
    for column, function in functions.items():
        if column not in columns:
            near = did_you_mean(column, columns, f"there are {', '.join(f'`{c}`' for c in columns)}")
            raise ScoringError(f"functions: {name} names no function for `{column}`; {near}")
        if not callable(function):
            raise ScoringError(f"functions: what is given for `{column}` is no function")
