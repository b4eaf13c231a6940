"""Terminal manners: widths, colours, progress, examples in `--help`, and options that would be ignored."""

import errno
import io
import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import typer
from commands_in_process import run
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ, SPECS

from rewardspec.cli import app
from rewardspec.cli.printing import progress, terminal
from rewardspec.cli.printing.table import laid_out
from rewardspec.cli.printing.terminal import coloured, wide, wrapped

COMMANDS = typer.main.get_command(app)
NAMES = COMMANDS.list_commands(typer.Context(COMMANDS))
LOG = '{"group": 1, "correct": 1, "tokens": 10}\n{"group": 1, "correct": 0, "tokens": 9000}\n'


# Tables


WORDS = st.text(st.sampled_from("ab1.%-日"), min_size=1, max_size=8)
CELLS = st.lists(WORDS, max_size=8).map(" ".join)
TABLES = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.lists(CELLS, min_size=n, max_size=n), st.lists(st.lists(CELLS, min_size=n, max_size=n), max_size=4)
    )
)


@pytest.mark.slow
@settings(max_examples=50 * FUZZ, deadline=None)
@given(TABLES, st.integers(60, 120))
def test_tables_fit_and_break_no_word(table, width):
    heads, rows = table
    lines = laid_out(heads, rows, width)
    assert all(wide(line) <= width for line in lines), lines
    printed = [word for line in lines for word in line.split()]
    for word in (word for row in rows for cell in row for word in cell.split()):
        assert word in printed, (word, lines)


@given(CELLS, st.integers(24, 60))
def test_wrapped_lines_are_the_text(text, width):
    assert " ".join(wrapped(text, width)) == text and all(wide(line) <= width for line in wrapped(text, width))


def test_a_word_wider_than_a_line_is_broken():
    assert wrapped("ab cdefgh i", 3) == ["ab", "cde", "fgh", "i"]


def test_the_first_column_of_a_table_that_is_too_wide_stands_above_the_others():
    heads = ("spec", "size", "kept apart")
    rows = [("some-very-long-name", "2", "0.5"), ("some-very-long-name", "16", "0.25"), ("another", "2", "1")]
    assert laid_out(heads, rows, 24) == [
        "",
        " spec",
        "   size  kept apart",
        f"   {terminal.rule() * 16}",
        " some-very-long-name",
        "      2         0.5",
        "     16        0.25",
        " another",
        "      2           1",
        "",
    ]


def test_a_table_that_cannot_fit_becomes_lists():
    heads, rows = ("spec", "a long head", "n"), [("some-very-long-name", "x" * 12, "y" * 14)]
    assert laid_out(heads, rows, 30) == [
        "",
        " spec some-very-long-name",
        f"   a long head  {'x' * 12}",
        f"   n            {'y' * 14}",
        "",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "gdpo/math", "-g", "2", "--sweep"],
        ["diff", "gdpo/math", "gdpo/math_conditioned", "-g", "2"],
        ["explain", str(SPECS / "toolrl/length_dynamic.yaml"), "--at", "0,100%", "--total-steps", "9"],
        ["list"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_commands_print_is_as_wide_as_columns(arguments, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    done = run(*arguments)
    wider = [line for line in done.stdout.splitlines() if wide(line) > width]
    assert not [line for line in wider if max(map(wide, line.split())) < width - 30]  # a word that is itself too wide


# Colours


RENDERED = "error[no]: x\n --> a.yaml:1:2\n  |\n1 | a: b\n  | ^^ here\nhelp: write `c`"


def test_colours_are_for_terminals_and_what_they_colour_stays(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert coloured(RENDERED) == RENDERED  # captured, so no terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31merror[no]\x1b[0m" in coloured(RENDERED)
    assert re.sub(r"\x1b\[\d*m", "", coloured(RENDERED)) == RENDERED
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured(RENDERED) == RENDERED
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert coloured(RENDERED) == RENDERED


@pytest.mark.slow
def test_a_terminal_has_colours_and_its_own_width():
    pty = pytest.importorskip("pty")
    for more, has in (({}, True), ({"NO_COLOR": "1"}, False)):
        ours, theirs = pty.openpty()
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM", "COLUMNS")}
        environment |= {"TERM": "xterm", "COLUMNS": "72", **more}
        command = [sys.executable, "-m", "rewardspec", "check", "gdpo/math"]
        subprocess.run(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment, check=True)
        os.close(theirs)
        text = os.read(ours, 65536).decode()
        os.close(ours)
        assert ("\x1b[33mwarning[phantom-gradient]\x1b[0m" in text, "\x1b[" in text) == (has, has)


def test_another_pipe_that_breaks_is_no_end_of_the_output(monkeypatch):
    def breaks(*_, **__):
        raise BrokenPipeError(errno.EPIPE, "of a worker that ended, for example")

    monkeypatch.setattr("rewardspec.cli.commands.list.catalogue", breaks, raising=False)
    monkeypatch.setattr("rewardspec.language.catalogue.catalogue", breaks)
    assert run("list").returncode != 0


def test_output_that_ends_early_is_no_error_and_one_that_cannot_be_written_is_said():
    command = f"{shlex.quote(sys.executable)} -m rewardspec list schemes"
    for more, status, said in (
        (" | head -1; exit ${PIPESTATUS[0]}", 0, ""),
        (" >&-", 0, ""),
        (" >/dev/full", 2, "rewardspec: cannot write the output: No space left on device\n"),
    ):
        if "full" in more and not os.path.exists("/dev/full"):
            continue
        done = subprocess.run(["bash", "-c", command + more], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (status, said), more


# Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_for_terminals_and_what_takes_long(monkeypatch):
    with progress.progress("waiting") as show:
        assert show is None
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.progress("waiting") as show:
        show("nearly", 1, 2)
    assert screen.getvalue() == ""  # it was over soon
    monkeypatch.setattr(progress, "SOON", 0)
    with progress.progress("waiting") as show:
        for _ in range(100):  # until the other thread has started the bar
            show("a \x1b[1m::name", 1, 2)
            time.sleep(0.02)
            if "1/2" in screen.getvalue():
                break
    assert "a \\x1b[1m::name" in screen.getvalue() and "1/2" in screen.getvalue()


def test_what_goes_on_when_all_are_done_is_said(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "SOON", 0)
    monkeypatch.setenv("COLUMNS", "100")
    with progress.bar("scoring", "writing") as done:
        for n in range(200):
            done(min(n, 50), 50)
            time.sleep(0.01)
            if "writing" in screen.getvalue():
                break
    first, _, last = screen.getvalue().partition("writing")
    assert "/50" in first and "/50" not in last


def test_lines_are_counted_as_they_are_taken():
    said = []
    assert [*progress.counted("ab", lambda *state: said.append(state), "reading")] == ["a", "b"]
    assert said == [("reading", 0)]


SOONER = "from rewardspec.cli.printing import progress; progress.SOON = 0; from rewardspec.cli import main; main()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        (["label", "log.jsonl", "rc_grpo/rc_grpo", "-o", "out.jsonl"], "labelling"),
        (["fmt", str(SPECS / "gdpo"), "--check"], "formatting "),
        (["watch", ".", "--idle", "0.1", "--every", "0.1"], "waiting for a step"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_progress_is_on_stderr_where_that_is_a_terminal(arguments, label, tmp_path):
    pty = pytest.importorskip("pty")
    row = '{"messages": [{"role": "user", "content": "q"}], "state": 1, "action": 1}\n'
    (tmp_path / "log.jsonl").write_text(row * 3000)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", SOONER, *arguments]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # at the end of the terminal
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    child.wait(timeout=60)
    assert label in shown.decode()
    (tmp_path / "out.jsonl").unlink(missing_ok=True)
    assert label not in run(*arguments, cwd=tmp_path).stderr


# Help


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example_whose_options_exist(name):
    command = COMMANDS.get_command(typer.Context(COMMANDS), name)
    examples = re.findall(rf"^\s*(rewardspec {name}\b.*)$", command.help, re.M)
    assert examples, command.help
    options = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    for example in examples:
        used = [word for word in shlex.split(example) if re.fullmatch(r"--?[a-z].*", word)]
        assert {*used} <= options, example


@pytest.mark.parametrize("name", NAMES)
def test_help_fits_80_columns_and_cuts_no_option(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(name, "--help").stdout
    assert max(map(wide, shown.splitlines())) <= 80 and "…" not in shown
    assert not re.search(r"<\w", shown)  # such as <int range>
    command = COMMANDS.get_command(typer.Context(COMMANDS), name)
    assert {option for param in command.params if param.opts[0][0] == "-" for option in param.opts} <= {*shown.split()}


@pytest.mark.parametrize(
    ("word", "help"),
    [("chek", "did you mean `check`?"), ("a.yaml", "write `rewardspec check a.yaml`"), ("zzz", "'zzz' ")],
)
def test_a_word_that_is_no_command_is_answered_with_what_was_meant(word, help, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    done = run(word)
    assert done.returncode == 2 and help in done.stderr


def test_an_unknown_word_is_answered_with_names_that_have_it():
    assert "names with `dead` are `dead-groups`" in run("explain", "dead").stderr
    assert "did you mean `toolrl.correctness`?" in run("explain", "toolrl.corectness").stderr
    assert "cannot read mine.yaml" in run("explain", "mine.yaml").stderr
    assert run("explain", "nonsense").stderr.endswith("`rewardspec list` shows the names\n")


def test_a_new_spec_is_named_with_or_without_the_suffix_of_its_file(tmp_path):
    assert run("new", "mine.yaml", cwd=tmp_path).stdout.startswith("wrote mine.yaml, ")
    assert "\nname: mine\n" in (tmp_path / "mine.yaml").read_text()


# Options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "SPEC", "--rollouts", "LOG", "--plot", "x.png", "--sweep"], "--plot and --sweep cannot be"),
        (["simulate", "SPEC", "--rollouts", "LOG", "-g", "2"], "-g cannot be combined with --rollouts"),
        (["simulate", "SPEC", "--rollouts", "LOG", "--p", "correct=0.5"], "--p cannot be"),
        (["simulate", "SPEC", "--rollouts", "LOG", "--items", "2", "--step", "0"], "--items and --step cannot be"),
        (["simulate", "SPEC", "--group-by", "group"], "--group-by cannot be used without --rollouts"),
        (["simulate", "SPEC", "--prefix", ""], None),
        (["diff", "SPEC", "SPEC", "--rollouts", "LOG", "--items", "1"], "--items cannot be combined with --rollouts"),
        (["diff", "SPEC", "SPEC", "--total-steps", "9"], "--total-steps cannot be used without --rollouts"),
        (["compile", "SPEC", "--trust", "--force"], "--force and --trust need --target"),
        (["compile", "SPEC", "--allow-python", "m"], "--allow-python needs --target"),
        (["compile", "SPEC", "--seed", "1"], "--seed needs --target"),
        (["check", "SPEC", "--p", "correct=0.5"], "--p needs a group size"),
        (["explain", "SPEC", "--total-steps", "9"], "--total-steps needs --at"),
    ],
)
def test_options_that_would_be_ignored_are_refused(arguments, message, tmp_path):
    (tmp_path / "log.jsonl").write_text(LOG)
    words = {"SPEC": str(SPECS / "gdpo/math.yaml"), "LOG": str(tmp_path / "log.jsonl")}
    done = run(*(words.get(word, word) for word in arguments), cwd=tmp_path)
    assert done.returncode == (0 if message is None else 2)
    assert (message or "") in done.stderr and not (tmp_path / "x.png").exists()


def test_constants_are_set_under_every_scheme(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "rewardspec: 1\nname: s\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1], weight: w}}\n"
        "define: {w: 1}\nadvantage: grpo\n"
    )
    counts = {}
    for given_constants in ([], ["--set", "w=0"]):
        done = run("simulate", spec, "-g", "2", "--advantage", "dr_grpo", "--format", "json", *given_constants)
        counts[bool(given_constants)] = re.search(r'"advantage_groups": (\d+)', done.stdout)[1]
    # a - mean and a + b - mean: of two rollouts -1/2, 0 or 1/2 apart, and with b also -1 and 1, up to order
    assert counts == {False: "3", True: "2"}


@pytest.mark.slow
def test_words_of_tables_are_explained_below_them(tmp_path):
    (tmp_path / "log.jsonl").write_text(LOG)
    text = run("simulate", "gdpo/math", "-g", "2").stdout
    assert "kept apart: advantage groups for each reward group" in text and "spread: the largest advantage" in text
    assert "spread: " in run("simulate", "gdpo/math", "--rollouts", tmp_path / "log.jsonl").stdout
    assert "signal lost: " in run("diff", "gdpo/math", "gdpo/math_conditioned", "-g", "2").stdout
    assert terminal.rule() in ("─", "-")
