"""The process that holds a test in Python, and sends requests to the one that holds the program.

The two exchange plain values. The program's process never sees expected values, and this one runs no code of the
program: a returned object with its own `==`, a changed `len` or an early `os._exit(0)` cannot pass a test.
"""

from __future__ import annotations

import ast
import builtins
import json
import operator
import re
import socket
from collections.abc import Callable

from rewardspec.rewards.code.runner.converse import MUTABLE, Channel, Gone
from rewardspec.rewards.code.runner.plain import decode, encode

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than running a program
if TYPE_CHECKING:
    from typing import Any

_WHOLE = re.compile(r"-?[0-9]{1,18}")


class ProgramError(Exception):
    """An exception of the program."""


class Unusable(BaseException):
    """The test needs something that is not supported."""


class Remote:
    """An object of the program, for a test. It can equal only other such objects, if the program compares them so."""

    def __init__(self, tester: Tester, number: int):
        self.__dict__.update(_tester=tester, _number=number)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._tester.ask("call", self, list(args), kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in ("__name__", "__doc__", "__dict__"):
            raise AttributeError(name)
        return self._tester.ask("attribute", self, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._tester.ask("assign", self, name, value)

    def __getitem__(self, key: object) -> object:
        return self._tester.ask("item", self, key)

    def __setitem__(self, key: object, value: object) -> None:
        self._tester.ask("put", self, key, value)

    def __iter__(self) -> Any:
        return self._tester.ask("iterate", self)

    def __next__(self) -> object:
        return self._tester.ask("next", self)

    def __len__(self) -> int:
        return operator.index(self._tester.ask("length", self))

    def __bool__(self) -> bool:
        return self._tester.ask("true", self) is True

    def __str__(self) -> str:
        return str(self._tester.ask("text", self))

    def __repr__(self) -> str:
        return str(self._tester.ask("represent", self))

    def __instancecheck__(self, instance: object) -> bool:
        return self._tester.ask("instance", instance, self) is True

    def __eq__(self, other: object) -> bool:
        return self._tester.ask("equal", self, other) is True if isinstance(other, Remote) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._tester.ask("less", self, other) is True if isinstance(other, Remote) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._tester.ask("less_equal", self, other) is True if isinstance(other, Remote) else NotImplemented

    __hash__ = object.__hash__


class Tester:
    """The test's side of the exchange."""

    def __init__(self, connection: socket.socket):
        self.channel = Channel(connection)
        self.callbacks: list[Callable[..., Any]] = []

    def _refer(self, value: object) -> object:
        if isinstance(value, Remote):
            return ["program", value._number]
        if not callable(value):
            raise Unusable(f"a {type(value).__name__} of the test cannot be passed to the program")
        self.callbacks.append(value)
        return ["test", len(self.callbacks) - 1]

    def _referred(self, number: object) -> Remote:
        if not isinstance(number, int):
            raise ValueError("not a reference")
        return Remote(self, number)

    def ask(self, operation: str, *args: Any) -> Any:
        """The program's answer. Raises the built-in exception that the program raised, marked as the program's."""
        sent = list(args[1]) if operation == "call" else []
        reply = self._exchange({"operation": operation, "args": encode(list(args), self._refer)})
        changed = reply.get("args")
        for before, after in zip(sent, changed if isinstance(changed, list) else (), strict=False):
            if after is not None and type(before) in MUTABLE:
                _replace(before, self._decode(after))
        return self._decode(reply.get("value"))

    def names(self, wanted: list[str]) -> dict[str, object]:
        """The values of those names that the program defines."""
        found = self._exchange({"names": wanted}).get("value")
        if not isinstance(found, dict):
            raise Gone
        return {name: self._decode(data) for name, data in found.items() if name in wanted}

    def start(self) -> None:
        """Run the program."""
        self._exchange({"start": True})

    def _decode(self, data: object) -> Any:
        try:
            return decode(data, self._referred)
        except (ValueError, TypeError, KeyError, IndexError, ArithmeticError, RecursionError):
            raise Gone from None

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        self.channel.send(message)
        while True:
            reply = self.channel.receive()
            if "callback" not in reply:
                break
            self.channel.send(self._call_back(reply))
        if "raised" in reply:
            raise _raised(reply["raised"])
        return reply

    def _call_back(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            args, kwargs = self._decode(message.get("args"))
            return {"value": encode(self.callbacks[message["callback"]](*args, **kwargs), self._refer)}
        except Gone:
            raise
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"}


def _replace(before: Any, after: Any) -> None:
    """Apply the program's changes of its copy to a container of the test."""
    if type(after) is not type(before) or after == before:
        return
    if isinstance(before, list | bytearray):
        before[:] = after
    else:
        before.clear()
        before.update(after)


def _raised(data: object) -> BaseException:
    name, text = data if isinstance(data, list) and len(data) == 2 else ("", "")
    kind = getattr(builtins, name, None) if isinstance(name, str) else None
    wanted = kind if isinstance(kind, type) and issubclass(kind, Exception) else ProgramError
    try:
        error = wanted(text)
    except TypeError:  # such as UnicodeDecodeError, which needs more arguments
        error = ProgramError(text)
    error.of_program = True  # type: ignore[attr-defined]  # a mark that no other exception has
    return error


def holds(case: dict[str, Any], connection: socket.socket) -> dict[str, bool]:
    """Whether the test passes, and whether the program caused an error in it.

    case: {"imports", "code"}, texts in Python, or {"function", "args", "expected"}. `unusable`: the test needs
    something that is not available.
    """
    side = Tester(connection)
    missing: set[str] = set()
    try:
        scope: dict[str, object] = {"__name__": "test", "__builtins__": builtins}
        exec(compile(case.get("imports", ""), "<imports>", "exec"), scope)
        side.start()
        passed = _call_holds(side, case) if "function" in case else _test_holds(side, case["code"], scope, missing)
        return {"passed": passed, "error": False}
    except (ImportError, Unusable) as error:
        own = _of_program(error)
        return {"passed": False, "error": own, "unusable": not own}
    except NameError as error:
        return {"passed": False, "error": _of_program(error) or error.name in missing}
    except Gone:
        return {"passed": False, "error": True}
    except BaseException as error:
        return {"passed": False, "error": _of_program(error)}


def _of_program(error: BaseException) -> bool:
    return getattr(error, "of_program", False)


def _call_holds(side: Tester, case: dict[str, Any]) -> bool:
    name = case["function"]
    found = side.names([name, "Solution"])
    solution: Any = found.get("Solution")
    is_method = name not in found and isinstance(solution, Remote)
    function = getattr(solution(), name) if is_method else found.get(name)
    if not isinstance(function, Remote):
        error = NameError(f"no function {name}")
        error.of_program = True  # type: ignore[attr-defined]  # the same mark
        raise error
    value, expected = function(*map(_keyed, case["args"])), case["expected"]
    wrapped = isinstance(expected, list) and len(expected) == 1
    return same(value, expected) or (wrapped and same(value, expected[0]))


def _keyed(arg: Any) -> Any:
    """The argument with integer keys if all its keys are integers in text: JSON has only text keys."""
    whole = isinstance(arg, dict) and arg and all(_WHOLE.fullmatch(key) for key in arg)
    return {int(key): value for key, value in arg.items()} if whole else arg


def same(value: Any, expected: Any) -> bool:
    """Whether a returned value equals the expected value of a test in JSON, where tuples are lists and keys are texts.

    Floats may differ by 1e-6, relative or absolute.
    """
    if isinstance(expected, list):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(expected)
            and all(same(a, b) for a, b in zip(value, expected, strict=True))
        )
    if isinstance(expected, dict):
        if not isinstance(value, dict) or len(value) != len(expected):
            return False
        named = {_key(key): item for key, item in value.items()}
        return named.keys() == expected.keys() and all(same(named[key], expected[key]) for key in expected)
    if isinstance(value, float) or isinstance(expected, float):
        numbers = isinstance(value, int | float) and isinstance(expected, int | float)
        return numbers and (value == expected or abs(value - expected) <= 1e-6 * max(1.0, abs(expected)))
    return not isinstance(value, Remote) and value == expected


def _key(key: object) -> str:
    return key if isinstance(key, str) else json.dumps(key) if isinstance(key, bool | int | float) else repr(key)


def _test_holds(side: Tester, code: str, scope: dict[str, object], missing: set[str]) -> bool:
    """Run a test. Names outside `scope` come from the program; those that it lacks are added to `missing`."""
    tree = ast.parse(code)
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            own |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - scope.keys()
    free = {name for name in used if not hasattr(builtins, name)}
    found = side.names(sorted(free) if free - own else _first_called(tree))
    missing |= free - own - found.keys()
    scope.update(found)
    exec(compile(tree, "<test>", "exec"), scope)
    return True


def _first_called(node: ast.AST) -> list[str]:
    """The name of the function that is called first, in a list; empty if it has none.

    `assert sum(10, 15) == 6` may test a function `sum` of the program. No other built-in name is taken from the
    program: in `assert set(sum(x)) == set(y)` the program's own `set` could make everything equal.
    """
    for child in ast.iter_child_nodes(node):
        found = _first_called(child)
        if found:
            return found
    return [node.func.id] if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else []
