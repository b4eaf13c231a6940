"""Python programs, run on their tests in the sandbox of sandbox.py, which says what it protects from.

The program is the last fenced block of the answer that is marked as Python, or else the last one, or else the whole
answer; the answer is what follows the first `</think>`. A block that is not closed goes on to the end.

`tests`, as values or as JSON text, are one of

- `{"inputs": [...], "outputs": [...]}` or `[{"input": ..., "output": ...}, ...]`: what the program reads and writes,
  texts or lists of lines (APPS, TACO, CodeContests);
- the same with `fn_name` (in a test, `"testtype": "functional"` and its name in `metadata: {func_name}`): the function,
  or method of `class Solution`, is called; an input is a list of arguments, or a text with one in JSON on each line
  (LiveCodeBench), and a dict whose keys are all whole numbers has them as such, since JSON has no other keys; an
  output is the result, or a list with nothing else in it;
- `["assert f(1) == 2", ...]`: each is a test; one without `assert` is set-up of all (MBPP). Tests reach the program's
  names only, with plain values and its own objects; exceptions that it defines cannot be caught by their class.
  Set-up runs in the program, but for imports and functions that use no name of the program's: those run apart from
  it, where it can change nothing of them.

Programs and tests in Python have the standard library.

What is written is compared line by line, white space at the ends of lines and empty lines at the end aside. A line
also holds where it has as many words, and each is the same, or both are numbers, one of them not whole, that differ
by no more than 1e-6, relative or absolute. So are floats in results compared.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import json
import logging
import math
import os
import re
import textwrap
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from rewardspec.rewards.reward import BadReference, between, each, reward
from rewardspec.rewards.sandbox import Limits, Result, SandboxError, protections, run_with_inputs, run_with_tests
from rewardspec.text.diagnostics import shorten

Seconds = Annotated[float, Field(gt=0, le=3600)]
Mebibytes = Annotated[int, Field(ge=64, le=1 << 20)]
Workers = Annotated[int, Field(ge=1, le=1024)]

_PYTHON = ("python", "python3", "py")
KEPT = 16384  # verdicts, for the rewards of one batch
# linear for any text: a run of backticks is looked at from its start alone, and nothing in a number backtracks
_OPENING = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n`~]*)\n", re.MULTILINE)
_WHOLE = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]{1,4})?")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """What a program came to on its tests."""

    passed: int
    tests: int
    clean: bool


@dataclass(frozen=True)
class Tests:
    """Either inputs with what they should come to, or tests in Python as the sandbox takes them, after `setup`."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    in_python: tuple[dict, ...] = ()
    setup: str = ""

    @cached_property
    def digest(self) -> bytes:
        text = json.dumps([self.inputs, self.outputs, self.in_python, self.setup])
        return hashlib.sha256(text.encode()).digest()


@reward("code.pass_rate", domain=lambda **_: between(0, 1), inputs=("completion", "tests"), many=True)
def pass_rate(
    completions: Sequence[str],
    tests: Sequence[object],
    *,
    timeout: Seconds = 5.0,
    total: Seconds = 60.0,
    memory: Mebibytes = 1024,
    workers: Workers | None = None,
) -> list[float | None]:
    """The share of its tests that the program in each completion passes.

    tests: inputs and outputs, calls, or texts with `assert`, for each completion; the module says in which forms.
    timeout: seconds by the clock for one test; total: for all tests of a program, those not reached by then failed.
    memory: MiB for each process. workers: programs at once, for None as many as there are processors.
    None for a program that cannot be run here, or a test that needs what is not here. Raises BadReference.
    Source: GDPO, arXiv:2601.05242, Sec. 4.3, pass rate reward.
    """
    verdicts = judge(completions, tests, Limits(timeout, total, memory), workers)
    return [verdict and verdict.passed / verdict.tests for verdict in verdicts]


@reward("code.no_error", domain=(0, 1), inputs=("completion", "tests"), many=True)
def no_error(
    completions: Sequence[str],
    tests: Sequence[object],
    *,
    timeout: Seconds = 5.0,
    total: Seconds = 60.0,
    memory: Mebibytes = 1024,
    workers: Workers | None = None,
) -> list[float | None]:
    """1 where the program in each completion runs on all its tests without an error, right or wrong, else 0.

    No program at all, a syntax error, an exception, an exit status, a lack of time or memory, and too long an output
    are errors. The options are those of `code.pass_rate`, and with the same ones no program is run again for it.
    Source: GDPO, arXiv:2601.05242, Sec. 4.3, bug reward.
    """
    verdicts = judge(completions, tests, Limits(timeout, total, memory), workers)
    return [verdict and float(verdict.clean) for verdict in verdicts]


def program_of(completion: str) -> str:
    """The program in a completion, which may be none."""
    _, closed, rest = completion.partition("</think>")
    answer = rest if closed else completion
    blocks, at = [], 0
    while opening := _OPENING.search(answer, at):
        mark, least = opening[1][0], len(opening[1])
        # a fence at the end of the program's last line closes it, too
        closing = re.compile(rf"(?<!{mark}){mark}{{{least},}}[ \t]*$", re.MULTILINE).search(answer, opening.end())
        at = closing.end() if closing else len(answer)
        language = opening[2].split()[:1]
        blocks.append((language, answer[opening.end() : closing.start() if closing else len(answer)]))
    marked = [content for language, content in blocks if language and language[0].lower() in _PYTHON]
    program = marked[-1] if marked else blocks[-1][1] if blocks else answer
    first = program.lstrip("\n")
    return textwrap.dedent(program) if first[:1] in (" ", "\t") else program  # a block in a list is indented


def judge(
    completions: Sequence[str], tests: Sequence[object], limits: Limits, workers: int | None
) -> list[Verdict | None]:
    """The verdict on each program, None where there can be none. Raises BadReference.

    Equal programs with equal tests are run once, and the last verdicts are kept.
    """
    known: dict[object, Tests] = {}

    def read(given: object) -> Tests:
        key = given if isinstance(given, str) else id(given)
        if key not in known:
            known[key] = read_tests(given)
        return known[key]

    parsed = each(read, list(tests))  # a list keeps what it holds, and so each id means one object
    try:
        protections()
    except SandboxError as error:
        _log.warning("no program can be run: %s", error)
        return [None] * len(parsed)
    threads = ThreadPoolExecutor(workers or _processors())
    try:
        programs = map(program_of, completions)
        asked = [_verdict(threads, *each, limits) for each in zip(programs, parsed, strict=True)]
        return [future.result() for future in asked]
    finally:
        threads.shutdown(cancel_futures=True)  # an interrupt waits for the programs that run, for no others


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_kept: OrderedDict[tuple, Future[Verdict | None]] = OrderedDict()
_keeping = threading.Lock()


def _verdict(threads: ThreadPoolExecutor, program: str, tests: Tests, limits: Limits) -> Future[Verdict | None]:
    key = (hashlib.sha256(program.encode("utf-8", "surrogatepass")).digest(), tests.digest, limits)
    with _keeping:
        known = _kept.get(key)
        if known is not None and not (known.done() and (known.cancelled() or known.result() is None)):
            _kept.move_to_end(key)
            return known
        _kept[key] = future = threads.submit(_run, program, tests, limits)
        if len(_kept) > KEPT:
            _kept.popitem(last=False)
    return future


def _run(program: str, tests: Tests, limits: Limits) -> Verdict | None:
    count = len(tests.in_python or tests.inputs)
    if not program.strip():
        return Verdict(0, count, False)
    try:
        if tests.in_python:
            results = run_with_tests(program, tests.setup, tests.in_python, limits)
            passed = [result.passed for result in results]
        else:
            results = run_with_inputs(program, tests.inputs, limits)
            passed = [_right(result, output) for result, output in zip(results, tests.outputs, strict=True)]
    except (SandboxError, OSError) as error:
        _log.warning("a program could not be run: %s", error)
        return None
    if any(result.end == "unusable" for result in results):
        _log.warning("a test needs what is not here: %s", shorten(str(tests.in_python[0]), 200))
        return None
    return Verdict(sum(passed), count, all(result.end == "ok" for result in results))


def _right(result: Result, output: str) -> bool:
    return result.end == "ok" and same_output(result.written, output)


def same_output(written: str, expected: str) -> bool:
    """Whether what a program wrote is what it should have written."""
    found, wanted = (text.rstrip().split("\n") for text in (written, expected))
    return len(found) == len(wanted) and all(map(_same_line, found, wanted))


def _same_line(found: str, wanted: str) -> bool:
    if found.rstrip() == wanted.rstrip():
        return True
    a, b = found.split(), wanted.split()
    return len(a) == len(b) and all(x == y or _near(x, y) for x, y in zip(a, b, strict=True))


def _near(a: str, b: str) -> bool:
    if not (_NUMBER.fullmatch(a) and _NUMBER.fullmatch(b)) or (_WHOLE.fullmatch(a) and _WHOLE.fullmatch(b)):
        return False
    x, y = float(a), float(b)
    return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= 1e-6 * max(1.0, abs(y))


def read_tests(given: object) -> Tests:
    """The tests of one problem, as the module says. Raises BadReference."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise BadReference(f"tests in a text are JSON: {str(error)[:80]}") from None
    given = _plain(given)
    if isinstance(given, Mapping):
        inputs, outputs = _plain(given.get("inputs")), _plain(given.get("outputs"))
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            raise BadReference("tests have `inputs` and `outputs`, lists of one length")
        return _pairs(list(zip(inputs, outputs, strict=True)), _function(given.get("fn_name")))
    if not isinstance(given, list):
        raise BadReference("tests are a list, or `inputs` and `outputs`")
    if given and all(isinstance(test, str) for test in given):
        return _in_python(given)
    if not all(isinstance(test, Mapping) and test.keys() >= {"input", "output"} for test in given):
        raise BadReference("a test is a text in Python, or has an `input` and an `output`")
    names = {_function_of(test) for test in given}
    if len(names) > 1:
        raise BadReference("tests of one problem call one function")
    return _pairs([(test["input"], test["output"]) for test in given], *names)


def _plain(value: object) -> object:
    """Lists for the arrays that a table may hold."""
    return _plain(value.tolist()) if hasattr(value, "tolist") else list(value) if isinstance(value, tuple) else value


def _function_of(test: Mapping) -> str | None:
    name = test.get("fn_name")
    if name is None and test.get("testtype") == "functional":
        about = test.get("metadata")
        name = about.get("func_name") if isinstance(about, Mapping) else None
        if name is None:
            raise BadReference("a functional test has the name of its function in `metadata: {func_name: ...}`")
    return _function(name)


def _function(name: object) -> str | None:
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise BadReference("`fn_name` is the name of a function")
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
        raise BadReference("an input or output is a text, or a list of lines")
    return text


def _call(given: object, output: object) -> dict[str, object]:
    given, output = _plain(given), _plain(output)
    try:
        if isinstance(given, str):
            given = [json.loads(line) for line in given.strip().split("\n") if line.strip()]
            output = json.loads(output) if isinstance(output, str) else output
        if not isinstance(given, list):
            raise BadReference("the input of a call is a list of arguments")
        # through JSON, as it will be sent
        return json.loads(json.dumps({"args": given, "expected": output}))
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, BadReference):
            raise
        raise BadReference(f"arguments and results of calls are JSON: {str(error)[:80]}") from None


def _in_python(texts: list[str]) -> Tests:
    setup, imports, helpers, asserts = [], [], [], []
    for text in texts:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise BadReference(f"a test is Python: {str(error)[:80]}: {text[:80]!r}") from None
        if any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
            asserts.append(text)
            continue
        setup.append(text)
        # the rest of the set-up is the program's, but what a test uses of these is none that a program could change
        imports += [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        helpers += [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not asserts:
        raise BadReference("no test has an `assert`")
    first = "\n".join(map(ast.unparse, [*imports, *_closed(helpers, imports)]))
    return Tests(in_python=tuple({"imports": first, "code": text} for text in asserts), setup="\n".join(setup))


def _closed(helpers: list[ast.FunctionDef], imports: list[ast.Import | ast.ImportFrom]) -> list[ast.FunctionDef]:
    """Those of the functions that use no name of the program's."""
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
    bound |= {node.name for node in inner if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler)}
    bound |= _imported(node for node in inner if isinstance(node, ast.Import | ast.ImportFrom))
    return {node.id for node in inner if isinstance(node, ast.Name)} - bound
