"""Programs as rewards: what they come to on hand-worked tests, and that neither accidents nor tricks get anywhere."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ

from rewardspec.rewards import BadReference, find_reward
from rewardspec.rewards.code import no_error, pass_rate
from rewardspec.rewards.code.cases import read_tests
from rewardspec.rewards.code.output import same_output
from rewardspec.rewards.code.program import program_of
from rewardspec.rewards.code.runner.plain import decode, encode
from rewardspec.rewards.code.sandbox import (
    _CHILD,
    Limits,
    Result,
    SandboxError,
    _mode,
    protections,
    run_with_inputs,
    run_with_tests,
)

pytestmark = pytest.mark.slow  # processes, one after another


def works(mode):
    try:
        return run_with_inputs("import heapq, sqlite3\nprint(1)", [""], Limits(), mode=mode) == [Result("ok", "1\n")]
    except SandboxError:
        return False


MODES = [
    mode
    for mode in ("root", "user", "other", "limits")
    if (os.getuid() == 0 or mode in ("user", "limits")) and works(mode)
]
OWN = [mode for mode in MODES if mode in ("root", "user")]  # with namespaces
SHORT = Limits(timeout=2.0, total=10.0, memory=256)
BRIEF = Limits(timeout=0.4, total=10.0, memory=128)
every_mode = pytest.mark.parametrize("mode", MODES)
confined_mode = pytest.mark.parametrize("mode", OWN or [pytest.param("", marks=pytest.mark.skip("no namespaces"))])


def scores(program, tests, **options):
    text = f"```python\n{textwrap.dedent(program)}\n```"
    return pass_rate([text], [tests], **options)[0], no_error([text], [tests], **options)[0]


def ran(program, mode, text="", limits=SHORT):
    return run_with_inputs(textwrap.dedent(program), [text], limits, mode=mode)[0]


# what a program comes to

DOUBLE = {"inputs": ["1\n", "2\n", "-3\n", "x\n"], "outputs": ["2\n", "4\n", "-6\n", "xx\n"]}


@pytest.mark.parametrize(
    ("program", "passed", "clean"),
    [
        ("s = input()\nprint(int(s) * 2 if s.lstrip('-').isdigit() else s * 2)", 1, 1),
        ("print(int(input()) * 2)", 0.75, 0),  # the last input is no number
        ("print(2)", 0.25, 1),
        ("print(int(input()) * 2", 0, 0),  # no closing bracket
        ("import sys\nfor line in sys.stdin:\n    print(2 * line.strip())", 0.25, 1),  # 11, 22, -3-3, xx
        ("print(2 * input())\nraise SystemExit(3)", 0, 0),
        ("print(2 * open(0).read().strip())\nraise SystemExit", 0.25, 1),
        ("", 0, 0),
    ],
)
def test_share_of_inputs_that_come_to_their_outputs(program, passed, clean):
    assert scores(program, DOUBLE) == (passed, clean)
    assert scores(program, json.dumps(DOUBLE)) == (passed, clean)
    listed = [{"input": a, "output": b} for a, b in zip(DOUBLE["inputs"], DOUBLE["outputs"], strict=True)]
    assert scores(program, listed) == (passed, clean)


SUM = {"fn_name": "add", "inputs": [[1, 2], [[1], [2]], ["a", "b"]], "outputs": [[3], [[1, 2]], ["ab"]]}


@pytest.mark.parametrize(
    ("program", "passed", "clean"),
    [
        ("def add(a, b):\n    return a + b", 1, 1),
        ("class Solution:\n    def add(self, a, b):\n        return a + b", 1, 1),
        ("def add(a, b):\n    return int(a) + int(b)", 1 / 3, 0),  # int([1]) and int('a') are errors
        ("def add(a, b):\n    return 3", 1 / 3, 1),
        ("def plus(a, b):\n    return a + b", 0, 0),
        ("def add(a, b):\n    print(a + b)", 0, 1),
        ("def add(a, b):\n    return tuple(a + b) if isinstance(a, list) else a + b", 1, 1),  # JSON has no tuples
        ("add = 3", 0, 0),
    ],
)
def test_share_of_calls_that_return_their_outputs(program, passed, clean):
    assert scores(program, SUM) == pytest.approx((passed, clean))


def test_arguments_in_json_lines_as_in_livecodebench():
    about = {"testtype": "functional", "metadata": {"func_name": "pick"}}
    tests = [
        {"input": '[5, 7]\n1\n{"1": 2}', "output": "[7, 2]", **about},
        {"input": "[]\n0\n{}", "output": "[]", **about},
    ]
    assert scores("def pick(xs, i, table):\n    return [xs[i], table[1]] if xs else []", tests) == (1, 1)


MBPP = [  # task 2 of MBPP, and one with a module
    "import math",
    "assert set(similar_elements((3, 4, 5, 6),(5, 7, 4, 10))) == set((4, 5))",
    "assert math.isclose(sum(similar_elements((1.5, 2.5), (2.5, 4.5))), 2.5, rel_tol=1e-3)",
    "assert set(similar_elements((11, 12, 14, 13),(17, 15, 14, 13))) == set((13, 14))",
]


@pytest.mark.parametrize(
    ("program", "passed", "clean"),
    [
        ("def similar_elements(a, b):\n    return tuple(set(a) & set(b))", 1, 1),
        ("def similar_elements(a, b):\n    yield from set(a) & set(b)", 1, 1),
        ("def similar_elements(a, b):\n    return (4, 5)", 1 / 3, 1),
        ("def similar_elements(a, b):\n    return tuple({12: 0}[a[1]] and x for x in a)", 0, 0),
        ("def similar(a, b):\n    return tuple(set(a) & set(b))", 0, 0),
        ("assert False", 0, 0),
    ],
)
def test_share_of_assertions_that_hold(program, passed, clean):
    assert scores(program, MBPP) == pytest.approx((passed, clean))


@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("def sum(a, b): return a * b", "assert sum(2, 5) == 10"),  # named as a function of Python
        ("def sum(a, b): return a * b", "x = sum(2, 5)\nassert x == 10"),
        ("def f(x): return x + 1", "f = f(1)\nassert f == 2"),
        ("def f(xs): xs.sort()", "xs = [3, 1, 2]\nf(xs)\nassert xs == [1, 2, 3]"),
        ("def f(g, x): return [g(y) for y in x]", "assert f(lambda y: y + 1, [1, 2]) == [2, 3]"),
        ("def f(k): return lambda x: x + k", "assert f(2)(3) == 5"),
        (
            "class Stack(list):\n    pass\nclass Account:\n    n = 1\n    def add(self, k): self.n += k",
            "a = Account()\na.add(2)\na.add(k=3)\nassert a.n == 6 and isinstance(a, Account)",
        ),
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(x): return P(x)",
            "assert f(1) == P(1) and f(1) != P(2) and f(1).x == 1",
        ),
        ("def f(x): return 1 // x", "try:\n    f(0)\nexcept ZeroDivisionError:\n    pass\nelse:\n    assert False"),
        ("import itertools\ndef f(): return itertools.count(5)", "n = f()\nassert [next(n), next(n)] == [5, 6]"),
        (
            "from fractions import Fraction\nfrom collections import Counter, namedtuple\nP = namedtuple('P', 'x y')\n"
            "def f(): return [Fraction(1, 3), Counter('aab'), P(1, 2), 10**5000, 1j, b'x', range(3), {(1,): {2.5}}]",
            "from fractions import Fraction\nassert f() == "
            "[Fraction(1, 3), {'a': 2, 'b': 1}, (1, 2), 10**5000, 1j, b'x', range(3), {(1,): {2.5}}]",
        ),
        ("def f(x): return x[::-1]", "assert f('a\\ud800\\x00é') == 'é\\x00\\ud800a'"),
        ("def f(c): return c([1, 2]) == 2", "def check(candidate):\n    assert candidate(len)\ncheck(f)"),
    ],
)
def test_tests_in_python_see_the_program_as_if_it_were_theirs(program, test):
    assert scores(program, [test]) == (1, 1)


def test_an_exit_is_no_exception_that_a_test_waits_for():
    test = "try:\n    f(0)\nexcept Exception:\n    pass\nelse:\n    assert False"
    assert scores("import os\ndef f(x): os._exit(0)", [test]) == (0, 0)
    assert scores("def f(x): raise KeyError(x)", [test]) == (1, 1)


def test_set_up_is_the_programs():
    tests = [
        "class Node:\n    def __init__(self, x): self.x = x\nroot = Node(4)",
        "assert f(root) == 4",
        "assert f(Node(5)) == 6",
    ]
    assert scores("def f(node):\n    return node.x", tests) == (0.5, 1)


def test_what_a_test_needs_and_is_not_here_is_no_fault_of_the_program(caplog):
    tests = ["import no_such_module", "assert f(1) == 1"]
    assert scores("def f(x): return x", tests) == (None, None)
    assert "no_such_module" in caplog.text
    assert scores("import no_such_module", ["assert f(1) == 1"]) == (0, 0)


@pytest.mark.parametrize(
    ("written", "expected", "same"),
    [
        ("1 2 \n3\n\n", "1 2\n3", True),
        ("1  2", "1 2", True),
        ("1\n2", "1 2", False),
        (" 1", "1", True),
        ("a\r\nb\r\n", "a\nb\n", True),
        ("0.3333333", "0.33333333333", True),
        ("0.333", "0.3333", False),
        ("2.0", "2", True),
        ("1e3", "1000.0", True),
        ("10000000000000000000001", "10000000000000000000002", False),  # equal as floats
        ("100000000", "100000001", False),
        ("007", "7", False),
        ("nan", "nan", True),
        ("inf", "1e999", False),
        ("YES", "yes", False),
        ("", "0", False),
        ("1 " * 3, "1 1", False),
    ],
)
def test_outputs_compare_by_line_and_by_number(written, expected, same):
    assert same_output(written, expected) is same


# what is taken for the program


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("print(1)", "print(1)"),
        ("Here:\n```python\nprint(1)\n```\nDone.", "print(1)\n"),
        ("```\na\n```\n```py\nb\n```", "b\n"),
        ("```python\na\n```\nIt prints\n```text\n1\n```", "a\n"),
        ("```\na\n```\nor\n```\nb\n```", "b\n"),
        ("```python\nprint(1)", "print(1)"),  # cut off
        ("```Python title=x\nprint(1)```", "print(1)"),
        ("~~~python\ns = '```'\n~~~", "s = '```'\n"),
        ("````python\n```\n````", "```\n"),
        ("1. So\n   ```python\n   if a:\n       b\n   ```\n", "if a:\n    b\n"),
        ("<think>```python\na\n```</think>```python\nb\n```", "```python\nb\n```"[10:-3]),
        ("<think>```python\na\n```</think>b", "b"),
        ("```python\r\na\r\n```", "a\r\n"),
        ("", ""),
    ],
)
def test_program_is_the_last_block_of_the_answer(completion, program):
    assert program_of(completion) == program


@pytest.mark.parametrize(
    "garbage",
    [
        "`" * 10**6,
        "```" + "`x" * 500_000,
        "```python\n" + "`" * 10**6 + "x",
        "```python\n" * 100_000,
        "```" + " " * 10**6 + "`",
        "```python\n```" + " " * 10**6 + "x",
        "\n" * 10**6,
        "~" * 10**6 + "\n",
        " \t" * 500_000,
    ],
)
def test_a_million_characters_are_read_at_once(garbage):
    start = time.perf_counter()
    program_of(garbage)
    same_output(garbage, garbage[1:])
    same_output("1" * 10**6 + "x", "1" * 10**6 + ".5x")
    assert time.perf_counter() - start < 2


@settings(max_examples=20 * FUZZ)
@given(st.text(st.characters(codec=None), max_size=200))
def test_any_completion_has_a_score(text):
    assert 0 <= pass_rate([text], [{"inputs": [text], "outputs": [text]}], timeout=2)[0] <= 1


@pytest.mark.parametrize(
    "text", ["\ud800", "print('\ud800')", "a\x00b", "\x00", "(" * 10**5, "1+" * 10**5 + "1", "é" * 10**6]
)
def test_texts_that_are_hardly_python(text):
    assert pass_rate([text], [{"inputs": [""], "outputs": ["never"]}]) == [0]


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (None, "tests must be a list"),
        (3, "tests must be a list"),
        ([], "no test"),
        ({}, "`inputs` and `outputs`"),
        ({"inputs": ["1"], "outputs": []}, "equal length"),
        ({"inputs": [], "outputs": []}, "no test"),
        ({"inputs": [1], "outputs": ["1"]}, "a text, or a list of lines"),
        ({"inputs": [{}], "outputs": [""], "fn_name": "f"}, "list of arguments"),
        ({"inputs": ["[1"], "outputs": ["1"], "fn_name": "f"}, "JSON"),
        ({"inputs": [[{1}]], "outputs": [1], "fn_name": "f"}, "JSON"),
        ({"inputs": [[1]], "outputs": [1], "fn_name": ["f"]}, "name of a function"),
        ({"inputs": [[1]], "outputs": [1], "fn_name": "f g"}, "name of a function"),
        ("{", "JSON"),
        ("[" * 10**5, "JSON"),
        ("assert f(1) == 2", "JSON"),
        (["assert f(1) ="], "a test must be Python"),
        (["assert f('\x00')"], "a test must be Python"),
        (["assert " + "(" * 10**4], "a test must be Python"),
        (["import math"], "no test has an `assert`"),
        (["assert f(1)", {"input": "", "output": ""}], "a test must be a text"),
        ([{"input": ""}], "a test must be a text"),
        ([{"input": "", "output": "", "fn_name": "f"}, {"input": "", "output": ""}], "one function"),
        ([{"input": "", "output": "", "testtype": "functional"}], "func_name"),
        ([{"input": "", "output": "", "fn_name": []}], "name of a function"),
    ],
)
def test_malformed_tests_are_named(tests, message):
    with pytest.raises(BadReference, match=message):
        pass_rate(["print(1)"], [tests])


def test_tables_may_hold_arrays():
    numpy = pytest.importorskip("numpy")
    tests = numpy.array(["assert f(1) == 2", "assert f(2) == 3"], dtype=object)
    assert len(read_tests(tests).in_python) == 2
    assert read_tests({"inputs": numpy.array(["1", "2"]), "outputs": ("1", "2")}).inputs == ("1", "2")


def test_rewards_are_found_by_name():
    for name in ("code.pass_rate", "code.no_error"):
        found = find_reward(name)
        assert found.inputs == ("completion", "tests") and found.many
        assert found.options({"timeout": 2, "memory": 512})["workers"] is None
        with pytest.raises(ValueError, match="timeout"):
            found.options({"timeout": 0})


# accidents


@every_mode
@pytest.mark.parametrize(
    ("program", "end"),
    [
        ("while True: pass", "timeout"),
        ("import time\ntime.sleep(60)", "timeout"),
        (
            "import signal, time\nfor s in (1, 2, 3, 13, 14, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(60)",
            "timeout",
        ),
        ("x = bytearray(1 << 40)", "error"),
        ("x = []\nwhile True: x.append(' ' * 10**6)", "error"),
        ("def f(): f()\nf()", "error"),
        ("import sys\nsys.setrecursionlimit(10**9)\nf = lambda x: f(x)\nf(1)", ""),  # of memory or of time
        ("while True: print('x' * 10**6)", "output"),
        ("import ctypes\nctypes.string_at(0)", "error"),
        ("import os\nos.abort()", "error"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "error"),
        ("import os\nos.close(1)\nprint(1)", "error"),
        ("open('big', 'wb').write(b'x' * (17 << 20))", "error"),
        ("import threading\ndef f():\n    while True: pass\nthreading.Thread(target=f).start()", "timeout"),
    ],
)
def test_accidents_end_the_program_alone(program, end, mode):
    start = time.perf_counter()
    assert ran(program, mode, limits=BRIEF).end in ([end] if end else ["error", "timeout"])
    assert time.perf_counter() - start < 15


@every_mode
def test_recursion_as_deep_as_programs_use_it(mode):
    program = "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(int(input())))"
    assert ran(program, mode, "50000") == Result("ok", "50000\n")
    threaded = "import threading\nthreading.stack_size(1 << 26)\n" + program.replace("print(f(int(input())))", "")
    threaded += "t = threading.Thread(target=lambda: print(f(int(input()))))\nt.start()\nt.join()"
    assert ran(threaded, mode, "50000") == Result("ok", "50000\n")


def processes_with(mark):
    """Whoever has the mark in the command line that a sandbox starts, which all its processes have."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            status = (path.parent / "stat").read_text().rpartition(")")[2].split()[0]
            if status != "Z" and mark.encode() in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.fixture
def mark(monkeypatch):
    mark = f"# {uuid.uuid4()}"
    monkeypatch.setattr("rewardspec.rewards.code.sandbox._CHILD", _CHILD + mark)
    return mark


STAYS = {
    "double fork": """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0: time.sleep(300)
            os._exit(0)
    """,
    "deaf child": """
        import os, signal, time
        if os.fork() == 0:
            for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
            time.sleep(300)
    """,
    "waits for its child": """
        import os, time
        if os.fork() == 0: time.sleep(300)
        os.wait()
    """,
    "stopped child": """
        import os, signal
        if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)
    """,
    "fork bomb": """
        import os
        while True:
            try: os.fork()
            except OSError: pass
    """,
}


@every_mode
@pytest.mark.parametrize("kind", STAYS)
def test_no_process_is_left(kind, mode, mark):
    if kind == "fork bomb" and mode in ("user", "limits") and os.getuid() == 0:
        pytest.skip("the kernel does not limit root's processes, as `protections` says")
    start = time.perf_counter()
    limits, end = (Limits(timeout=0.5), "timeout") if kind in ("fork bomb", "waits for its child") else (Limits(), "ok")
    found = run_with_inputs(textwrap.dedent(STAYS[kind]), ["", ""], limits, mode=mode)
    assert {result.end for result in found} == {end}
    assert processes_with(mark) == set()
    assert time.perf_counter() - start < 15


def test_no_process_outlives_the_trainer(mark, tmp_path):
    trainer = (
        "import rewardspec.rewards.code.sandbox as s\n"
        f"s._CHILD += {mark!r}\n"
        "s.run_with_inputs('import time; time.sleep(300)', [''], s.Limits(timeout=300, total=300))"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    process = subprocess.Popen(
        [sys.executable, "-c", trainer], env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    )
    wait_for(lambda: len(processes_with(mark)) >= 4)  # the trainer, the sandbox's, its first and the program
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not processes_with(mark))


def wait_for(holds, seconds=30):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@every_mode
def test_number_of_processes_is_bounded(mode):
    if mode in ("user", "limits") and os.getuid() == 0:
        pytest.skip("the kernel does not limit root's processes, as `protections` says")
    program = """
    import os, time
    count = 0
    try:
        for _ in range(200):
            if os.fork() == 0:
                time.sleep(300)
            count += 1
    except OSError:
        print(count < 65)
    """
    assert ran(program, mode) == Result("ok", "True\n")


@every_mode
def test_files_of_one_test_are_gone_in_the_next(mode):
    program = "import os\nprint(os.listdir())\nopen('a', 'w').write('x')\nos.makedirs('b/c')\nos.chmod('b', 0)"
    found = run_with_inputs(program, ["", ""], SHORT, mode=mode)
    assert found == [Result("ok", "[]\n")] * 2


@every_mode
def test_folders_are_removed(mode, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    assert (
        ran("import os\nfor _ in range(400):\n    os.mkdir('d')\n    os.chdir('d')\nos.chmod('.', 0)", mode).end == "ok"
    )
    assert list(tmp_path.iterdir()) == []


@every_mode
def test_environment_is_empty(mode, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "sk-1234")
    assert ran("import os\nprint('SECRET_TOKEN' in os.environ, len(os.environ) < 8)", mode).written == "False True\n"


@every_mode
def test_signals_that_the_trainer_ignores_or_blocks_are_as_ever(mode):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN), signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        program = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nprint('alive')"
        assert ran(program, mode) == Result("error")
        assert ran("import os\nprint(os.wait()[1] if os.fork() else '')", mode).end == "ok"
    finally:
        signal.signal(signal.SIGCHLD, before[0])
        signal.pthread_sigmask(signal.SIG_SETMASK, before[1])


@every_mode
def test_programs_have_the_standard_library_alone(mode):
    assert ran("import heapq, decimal, sqlite3, zlib, dataclasses\nprint(1)", mode) == Result("ok", "1\n")
    assert ran("import pytest", mode).end == "error"


@confined_mode
def test_network_is_out_of_reach(mode):
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    connect = f"import socket\nprint('up')\nsocket.create_connection((input(), {port}), timeout=0.5)\nprint('there')"
    assert ran(connect, mode, "127.0.0.1") == Result("error", "up\n")
    assert ran(connect, mode, "192.0.2.1") == Result("error", "up\n")
    server.close()


@confined_mode
def test_unix_sockets_are_out_of_reach(mode, tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        program = f"import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect({str(tmp_path / 's')!r})"
        assert ran(program, mode).end == "error"


@confined_mode
def test_files_outside_are_out_of_reach(mode, tmp_path):
    (tmp_path / "secret").write_text("sk-1234")
    tmp_path.chmod(0o777)
    here, library = str(tmp_path), json.__file__
    hidden = [f"{here}/secret", "/etc/passwd", "/proc/1/environ", "/proc/self", "/dev/vda", "/dev/sda", "/run", "/home"]
    shared = "a" if sys.base_prefix.startswith("/tmp/") else "/tmp/a"
    # nothing here does harm where a sandbox fails
    program = f"""
    import os, tempfile
    print([path for path in {hidden} if os.path.exists(path)])
    for path in ({library!r}, "/dev"):
        same_mode = lambda: os.chmod(path, os.stat(path).st_mode)
        for change in (lambda: os.open(path, os.O_WRONLY), lambda: os.rename(path, path), same_mode):
            try:
                change()
                print("changed", path)
            except OSError:
                pass
    for path in ({here!r}, "/", "/usr", "/dev", "/dev/shm", "/proc", os.path.dirname({library!r})):
        try:
            os.rmdir(tempfile.mkdtemp(dir=path))
            print("made in", path)
        except OSError:
            pass
    open({shared!r}, "w")
    tempfile.mkdtemp()
    print(len(os.listdir()), len(open({library!r}).read()) > 100)
    print(len(open("/dev/urandom", "rb").read(8)), open("/dev/null", "w").write("abc"))
    """
    assert ran(program, mode) == Result("ok", "[]\n2 True\n8 3\n")


@confined_mode
def test_more_than_its_share_of_files_is_refused(mode):
    program = "for i in range(8):\n    with open(str(i), 'wb') as f: f.write(b'x' * (15 << 20))\n    print(i)"
    found = ran(program, mode)
    assert found.end == "error" and len(found.written.splitlines()) < 5  # 64 MiB


@confined_mode
def test_rights_cannot_be_had_again(mode):
    program = """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    print(libc.unshare(0x10000000), libc.unshare(0x20000), libc.chroot(b"."))
    print(libc.mount(b"x", b"/program", b"tmpfs", 0, None), libc.umount2(b"/program", 2), libc.sethostname(b"x", 1))
    for uid in (0, 1):
        try: os.setuid(uid)
        except OSError: print("refused")
    """
    assert ran(program, mode).written == "-1 -1 -1\n-1 -1 -1\nrefused\nrefused\n"


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "limits"])
def test_other_processes_are_out_of_reach(mode):
    program = """
    import os, signal
    own, other, trainer = os.getppid(), *map(int, input().split())
    for pid, number in ((own, signal.SIGKILL), (other, signal.SIGKILL), (trainer, 0)):  # 0 does no harm
        try:
            os.kill(pid, number)
            print("reached" if pid != own else "")
        except (ProcessLookupError, PermissionError):
            print()
    """
    with subprocess.Popen(["sleep", "60"]) as other:
        found = ran(program, mode, f"{other.pid} {os.getpid()}")
        alive = other.poll() is None
        other.kill()
    assert found == Result("ok", "\n" * 3) and alive


def test_protections_are_those_of_the_strictest_mode():
    found, mode = protections(), _mode()[0]
    assert mode == MODES[0]
    assert found.network is found.reads is found.writes is (mode in ("root", "user"))
    assert found.others is found.leftovers is (mode != "limits")
    assert bool(found.why) is not (found.network and found.processes)


def test_a_machine_without_namespaces_says_so(tmp_path):
    """A kernel that refuses namespaces, as a container's may, played."""
    script = tmp_path / "asks.py"
    script.write_text(
        "import logging, os, rewardspec.rewards.code.sandbox as s\n"
        "logging.basicConfig(format='%(message)s')\n"
        "real = s.run_with_inputs\n"
        "def refuse(*args, mode=None):\n"
        "    if mode in ('root', 'user'): raise s.SandboxError('unshare: Operation not permitted')\n"
        "    return real(*args, mode=mode)\n"
        "s.run_with_inputs = refuse\n"
        "p = s.protections()\n"
        "print(p.network, p.reads, p.writes, 'unshare' in p.why)\n"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False False False True\n"
    assert "with access to the network and the file system" in done.stderr


@settings(max_examples=60 * FUZZ)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(st.characters(codec=None))
        | st.binary()
        | st.complex_numbers(allow_nan=False)
        | st.fractions()
        | st.decimals(allow_nan=False)
        | st.dates()
        | st.datetimes().map(lambda time: time.replace(fold=0))
        | st.times().map(lambda time: time.replace(fold=0)),
        lambda inner: (
            st.lists(inner)
            | st.tuples(inner, inner)
            | st.dictionaries(st.integers() | st.text(), inner)
            | st.sets(st.integers() | st.text())
            | st.frozensets(st.tuples(st.integers()))
        ),
    )
)
def test_values_arrive_as_they_were_sent(value):
    def nothing(_):
        raise AssertionError

    arrived = decode(json.loads(json.dumps(encode(value, nothing))), nothing)
    assert arrived == value and type(arrived) is type(value)


@settings(max_examples=60 * FUZZ)
@given(st.recursive(st.none() | st.text() | st.integers() | st.sampled_from(["int", "set", "dict"]), st.lists))
def test_what_is_no_value_is_refused(data):
    with contextlib.suppress(ValueError, TypeError, ArithmeticError):
        decode(data, str)


def test_where_nothing_can_be_run_nothing_is_scored(monkeypatch, caplog):
    def refuse():
        raise SandboxError("no process can be started")

    monkeypatch.setattr("rewardspec.rewards.code.verdicts.protections", refuse)
    assert scores("print(2)", DOUBLE) == (None, None)
    assert "no process can be started" in caplog.text
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert scores("print(22)", DOUBLE) == (None, None)
    monkeypatch.undo()
    assert scores("print(22)", DOUBLE) == (0, 1)  # and it is asked anew


# tricks

TRICKS = {
    "exit": "import sys\nsys.exit(0)",
    "exit at once": "import os\nos._exit(0)",
    "exit in the call": "import os\ndef f(x): os._exit(0)",
    "SystemExit in the call": "def f(x): raise SystemExit(0)",
    "equal to everything": """
        class E:
            def __eq__(self, other): return True
            def __ne__(self, other): return False
        def f(x): return E()
    """,
    "int equal to everything": """
        class E(int):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            __hash__ = int.__hash__
        def f(x): return E(0)
    """,
    "list equal to everything": """
        class E(list):
            def __eq__(self, other): return True
            def __len__(self): return 1
        def f(x): return E()
    """,
    "has everything": """
        class E:
            def __getattr__(self, name): return lambda *args: True
            def __eq__(self, other): return True
            def __instancecheck__(self, other): return True
            def __len__(self): return 1
        def f(x): return E()
    """,
    "builtins": """
        import builtins
        builtins.AssertionError = None
        builtins.len = builtins.set = builtins.sorted = lambda *args: 0
        def f(x): return 0
    """,
    "own names": """
        set = sorted = len = lambda *args: 0
        def f(x): return 0
    """,
    "json": 'import json\njson.dumps = lambda *a, **k: \'{"passed": true, "error": false}\'\ndef f(x): return 0',
    "operator": "import operator\noperator.eq = lambda a, b: True\ndef f(x): return 0",
    "writes to all files": """
        import os
        for fd in range(3, 256):
            for text in (b'{"passed": true, "error": false}\\n', b'{"end": "ok", "passed": true}\\n'):
                try: os.write(fd, text)
                except OSError: pass
        def f(x): return 0
    """,
    "writes in the call, then exits": """
        import os
        def f(x):
            for fd in range(1, 256):
                for text in (b'{"passed": true, "error": false}\\n', b'{"end": "ok", "passed": true}\\n'):
                    try: os.write(fd, text)
                    except OSError: pass
            os._exit(0)
    """,
    "looks for what is expected": """
        import gc, sys
        def held(value):  # whether the number is in it; it is written nowhere in here
            return chr(52) + chr(55) + chr(49) + chr(49) in repr(value)
        def f(x):
            frame = sys._getframe()
            while frame:
                for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
                    if held(value): return int(chr(52) + chr(55) + chr(49) + chr(49))
                frame = frame.f_back
            for value in gc.get_objects():
                try:
                    if held(value): return int(chr(52) + chr(55) + chr(49) + chr(49))
                except Exception: pass
            return 0
    """,
    "kills the tester": """
        import os, signal
        def f(x):
            if os.getpid() > 99 and os.getuid() < 1 << 30: return 0  # not confined: others live here
            for pid in range(os.getpid() - 5, os.getpid() + 20):
                if pid != os.getpid() and pid > 1:
                    try: os.kill(pid, signal.SIGKILL)
                    except OSError: pass
            return 0
    """,
    "reads the tests": """
        import os
        def f(x):
            for fd in range(256):
                try:
                    if b'4711' in os.pread(fd, 10**6, 0): return 4711
                except OSError: pass
            for pid in range(1, 30):
                for fd in range(16):
                    try:
                        if b'4711' in open(f'/proc/{pid}/fd/{fd}', 'rb').read(): return 4711
                    except OSError: pass
            return 0
    """,
    "answers for itself": """
        import json, socket
        s = socket.socket(fileno=3)
        for _ in range(9):
            s.send(json.dumps({"value": {"f": ["reference", 0]}, "args": []}).encode() + b"\\n")
        for _ in range(9):
            s.send(json.dumps({"value": True, "callback": 0}).encode() + b"\\n")
        def f(x): return 0
    """,
    "raises AssertionError": "def f(x): raise AssertionError",
    "a mock": "from unittest.mock import MagicMock, ANY\ndef f(x): return ANY",
    "not a number": "def f(x): return float('nan')",
    "deep": "def f(x):\n    y = []\n    for _ in range(10**5): y = [y]\n    return y",
    "itself": "def f(x):\n    y = []\n    y.append(y)\n    return y",
}
EXPECTED = [
    [
        "assert f(1) == 4711",
        "assert set(f(1)) == {4711}",
        "assert not f(1) != 4711",
        "assert sorted(f(1)) == [4711] and len(f(1)) == 1",
        "x = f(1)\nassert 4711 == x, x",
        "assert f(1) in (4711, [4711])",
    ],
    {"fn_name": "f", "inputs": [[1]], "outputs": [[4711]]},
]


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_passes_a_test(trick):
    for tests in EXPECTED:
        assert scores(TRICKS[trick], tests, timeout=2)[0] == 0, tests


def test_looking_for_what_is_expected_would_find_it():
    program = textwrap.dedent(TRICKS["looks for what is expected"])
    assert scores(program + "\nnumbers = [[4711]]", EXPECTED[0], timeout=2)[0] == 4 / 6
    assert scores(program + "\nclass A: pass\na = A()\na.b = {'c': 4711}\ndel A", EXPECTED[0], timeout=2)[0] == 4 / 6


def test_right_programs_pass_the_tests_of_the_tricks():
    assert scores("def f(x): return 4711", EXPECTED[0], timeout=2)[0] == 4 / 6
    assert scores("def f(x): return [4711]", EXPECTED[0], timeout=2)[0] == 3 / 6
    assert scores("def f(x): return 4711", EXPECTED[1], timeout=2) == (1, 1)


def test_a_result_of_any_size_is_no_more_than_wrong():
    for value in ("[0] * 10**7", "'x' * 10**8"):
        assert scores(f"def f(x): return {value}", EXPECTED[0][:1], timeout=0.5)[0] == 0


@pytest.mark.parametrize(
    "trick", ["exit", "exit at once", "exit in the call", "SystemExit in the call", "raises AssertionError", "itself"]
)
def test_a_program_that_ends_early_has_an_error(trick):
    for tests in EXPECTED:
        assert scores(TRICKS[trick], tests) == (0, 0)


@pytest.mark.parametrize(
    ("trick", "mode"),
    [
        (trick, mode)
        for trick in ("reads the tests", "looks for what is expected", "writes to all files")
        for mode in MODES
    ]
    + [("kills the tester", mode) for mode in MODES if mode != "limits"],  # there it could kill anything
)
def test_tricks_in_every_mode(trick, mode):
    program = textwrap.dedent(TRICKS[trick])
    tests = [{"code": "assert f(1) == 4711"}, {"function": "f", "args": [1], "expected": 4711}]
    assert [result.passed for result in run_with_tests(program, "", tests, SHORT, mode=mode)] == [False, False]


# many


def test_equal_programs_are_run_once(monkeypatch):
    seen = []

    def count(program, inputs, limits, **rest):
        seen.append(program)
        return run_with_inputs(program, inputs, limits, **rest)

    monkeypatch.setattr("rewardspec.rewards.code.verdicts.run_with_inputs", count)
    tests = {"inputs": [""], "outputs": ["once"]}
    texts = ["print('once')", "print('once') ", "```\nprint('once')```"]
    assert pass_rate(texts, [tests] * 3) == [1, 1, 1]
    assert no_error(texts, [dict(tests)] * 3) == [1, 1, 1]
    assert sorted(seen) == ["print('once')", "print('once') "]
    assert pass_rate(texts[:1], [tests], timeout=4) == [1]  # other options, another run
    assert len(seen) == 3


def test_many_programs_at_once_keep_their_order():
    numbers = range(48)
    found = pass_rate(
        [f"n = int(input())\nprint(n + {n % 5})" for n in numbers],
        [{"inputs": ["1", str(n)], "outputs": ["2", str(n + 1)]} for n in numbers],
        workers=8,
    )
    assert found == [float(n % 5 == 1) for n in numbers]


def test_all_tests_of_a_program_share_a_time():
    start = time.perf_counter()
    tests = {"inputs": ["0"] * 20 + ["1"] * 20, "outputs": [""] * 40}
    assert scores("if input() == '0':\n    while True: pass", tests, timeout=0.2, total=0.9) == (0, 0)
    assert time.perf_counter() - start < 5


def test_sets_are_ordered_alike_in_every_run():
    program = "print(list({'a', 'b', 'c', 'd', 'e', 'f', 'g'}))"
    assert len({run_with_inputs(program, [""], Limits())[0].written for _ in range(4)}) == 1


CLOSE = """
import math
def near(a, b):
    return abs(a - b) < 1e-6
def close(a, b):
    return near(a, b) and math.isfinite(a)
"""


@pytest.mark.parametrize(
    ("program", "share"),
    [
        ("def f(x): return x + 1 + 1e-9", 1),
        ("def f(x): return 99", 0),
        ("import builtins\nbuiltins.abs = lambda x: 0\ndef f(x): return 99", 0),
        ("def close(a, b): return True\nnear = close\ndef f(x): return 99", 0),
        ("class E:\n    def __sub__(self, other): return 0.0\ndef f(x): return E()", 0),
    ],
)
def test_helpers_of_the_tests_are_out_of_the_programs_reach(program, share):
    assert pass_rate([program], [[CLOSE, "assert close(f(1), 2)", "assert close(f(2), 3)"]]) == [share]


def test_set_up_that_uses_the_program_runs_in_it():
    program = "class Node:\n    def __init__(self, value): self.value = value\ndef f(node): return node.value"
    helper = "def make(value):\n    return Node(value)\nroot = make(3)"
    assert pass_rate([program], [[helper, "assert f(root) == 3", "assert f(make(4)) == 4"]]) == [1]
