"""The tests of a problem, read from the formats of data sets.

`tests`, as values or as JSON text, have one of three formats:

- `{"inputs": [...], "outputs": [...]}` or `[{"input": ..., "output": ...}, ...]`: standard input and output of the
  program, as texts or lists of lines (APPS, TACO, CodeContests).
- The same with `fn_name`, or in each test `"testtype": "functional"` and `metadata: {func_name}`: a function, or a
  method of `class Solution`, is called. An input is a list of arguments, or a text with one argument in JSON on each
  line (LiveCodeBench). A dict whose keys are all integers in text gets integer keys, because JSON has only text keys.
  An output is the result, or a list that contains only the result.
- `["assert f(1) == 2", ...]`: each text is a test; texts without `assert` are set-up for all (MBPP). Tests can use the
  program's names, with plain values and the program's objects; they cannot catch exceptions of the program by class.
  Set-up runs in the program's process. Its imports, and functions that use no name of the program, also run in the
  test's process, where the program cannot change them.

Programs and tests in Python can import the standard library.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rewardspec.rewards.reward import BadReference


@dataclass(frozen=True)
class Tests:
    """Either inputs with expected outputs, or tests in Python in the sandbox's format, which run after `setup`."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    in_python: tuple[dict[str, Any], ...] = ()
    setup: str = ""

    @cached_property
    def digest(self) -> bytes:
        text = json.dumps([self.inputs, self.outputs, self.in_python, self.setup])
        return hashlib.sha256(text.encode()).digest()


def read_tests(given: object) -> Tests:
    """The tests of one problem, in any of the formats above. Raises BadReference."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise BadReference(f"a text of tests must be JSON: {str(error)[:80]}") from None
    given = _plain(given)
    if isinstance(given, Mapping):
        inputs, outputs = _plain(given.get("inputs")), _plain(given.get("outputs"))
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            raise BadReference("tests need `inputs` and `outputs`, lists of equal length")
        return _pairs(list(zip(inputs, outputs, strict=True)), _function(given.get("fn_name")))
    if not isinstance(given, list):
        raise BadReference("tests must be a list, or `inputs` and `outputs`")
    if given and all(isinstance(test, str) for test in given):
        return _in_python(given)
    if not all(isinstance(test, Mapping) and test.keys() >= {"input", "output"} for test in given):
        raise BadReference("a test must be a text in Python, or have an `input` and an `output`")
    names = {_function_of(test) for test in given}
    if len(names) > 1:
        raise BadReference("the tests of a problem must call one function")
    return _pairs([(test["input"], test["output"]) for test in given], *names)


def _plain(value: object) -> object:
    """A value with lists in place of arrays and tuples, which tables may contain."""
    return _plain(value.tolist()) if hasattr(value, "tolist") else list(value) if isinstance(value, tuple) else value


def _function_of(test: Mapping[str, Any]) -> str | None:
    name = test.get("fn_name")
    if name is None and test.get("testtype") == "functional":
        about = test.get("metadata")
        name = about.get("func_name") if isinstance(about, Mapping) else None
        if name is None:
            raise BadReference("a functional test needs the name of its function in `metadata: {func_name: ...}`")
    return _function(name)


def _function(name: object) -> str | None:
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise BadReference("`fn_name` must be the name of a function")
    return name


def _pairs(pairs: list[tuple[object, object]], function: str | None = None) -> Tests:
    if not pairs:
        raise BadReference("there is no test")
    if function is None:
        return Tests(tuple(_lines(given) for given, _ in pairs), tuple(_lines(output) for _, output in pairs))
    return Tests(in_python=tuple({"function": function, **_call(*pair)} for pair in pairs))


def _lines(text: object) -> str:
    text = _plain(text)
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        return "\n".join(text)
    if not isinstance(text, str):
        raise BadReference("an input or output must be a text, or a list of lines")
    return text


def _call(given: object, output: object) -> dict[str, object]:
    given, output = _plain(given), _plain(output)
    try:
        if isinstance(given, str):
            given = [json.loads(line) for line in given.strip().split("\n") if line.strip()]
            output = json.loads(output) if isinstance(output, str) else output
        if not isinstance(given, list):
            raise BadReference("the input of a call must be a list of arguments")
        # as it will be sent
        sent: dict[str, object] = json.loads(json.dumps({"args": given, "expected": output}))
        return sent
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, BadReference):
            raise
        raise BadReference(f"arguments and results of calls must be JSON: {str(error)[:80]}") from None


def _in_python(texts: list[str]) -> Tests:
    setup, imports, helpers, asserts = [], [], [], []
    for text in texts:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise BadReference(f"a test must be Python: {str(error)[:80]}: {text[:80]!r}") from None
        if any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
            asserts.append(text)
            continue
        setup.append(text)
        # tests get their own copies of these, which the program cannot change
        imports += [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        helpers += [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not asserts:
        raise BadReference("no test has an `assert`")
    first = "\n".join(map(ast.unparse, [*imports, *_closed(helpers, imports)]))
    return Tests(in_python=tuple({"imports": first, "code": text} for text in asserts), setup="\n".join(setup))


def _closed(helpers: list[ast.FunctionDef], imports: list[ast.Import | ast.ImportFrom]) -> list[ast.FunctionDef]:
    """The functions that use no name of the program."""
    known = {*dir(builtins), *_imported(imports)}
    while True:
        names = known | {helper.name for helper in helpers}
        closed = [helper for helper in helpers if _read(helper) <= names]
        if len(closed) == len(helpers):
            return closed
        helpers = closed


def _imported(nodes: Iterable[ast.Import | ast.ImportFrom]) -> set[str]:
    """The names that imports bind."""
    return {(alias.asname or alias.name).partition(".")[0] for node in nodes for alias in node.names}


def _read(function: ast.FunctionDef) -> set[str]:
    """The names that a function reads and does not bind."""
    inner = list(ast.walk(function))
    bound = {node.arg for node in inner if isinstance(node, ast.arg)}
    bound |= {node.id for node in inner if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.name for node in inner if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound |= {node.name for node in inner if isinstance(node, ast.ExceptHandler) and node.name is not None}
    bound |= _imported(node for node in inner if isinstance(node, ast.Import | ast.ImportFrom))
    return {node.id for node in inner if isinstance(node, ast.Name)} - bound
