"""The examples of a page, run in order in one folder, as a reader would who copies them.

A block with `title="NAME"` becomes a file. Commands of rewardspec run in this process and print what stands under
them; a line `...` stands for any lines. So do scripts. Python runs, and shares its names. A comment before a block
says otherwise:

    <!-- not run: why -->       another program, or a training run; a test of its own runs it where there is one
    <!-- not compared: why -->  it runs, and may print something else
    <!-- given: code -->        Python that is run first: what the page takes for granted
"""

import ast
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from commands_in_process import run
from places import ROOT

PAGES = sorted(ROOT.glob("docs/**/*.md"))
BLOCK = re.compile(r"^( *)```(?P<kind>\w+)?(?P<options>[^\n]*)\n(?P<text>.*?)^\1```$", re.M | re.S)
TITLE = re.compile(r'title="([^"]+)"')
IMAGE = re.compile(r"!\[[^\]]*\]\(([\w./-]+\.png)\)")
SAID = re.compile(r"<!-- (not run|not compared|given): (.*?) -->\s*\Z", re.S)
INCLUDED = re.compile(r"^# include (\S+)$", re.M)  # docs/hooks.py puts the file there
OTHERS = ("pip ", "make ", "git ", "code ", "cd ")  # commands that install, or that need no test here


@dataclass(frozen=True)
class Example:
    """A block. `said`: what the comments before it say, by word. `start`: of its text in the page."""

    kind: str
    title: str | None
    text: str
    said: dict[str, str]
    start: int
    line: int


def examples(page: Path) -> list[Example]:
    text = page.read_text(encoding="utf-8")
    found, at = [], 0
    for block in BLOCK.finditer(text):
        said, before = {}, text[at : block.start()]
        while comment := SAID.search(before):
            said[comment[1]], before = comment[2], before[: comment.start()]
        inner = re.sub(f"^{block[1]}", "", block["text"], flags=re.M)
        inner = INCLUDED.sub(lambda m: (ROOT / m[1]).read_text(encoding="utf-8").rstrip("\n"), inner)
        title, line = TITLE.search(block["options"]), text[: block.start()].count("\n") + 1
        found.append(Example(block["kind"] or "", title and title[1], inner, said, block.start("text"), line))
        at = block.end()
    return found


def commands(text: str) -> list[tuple[str, str]]:
    """(command, what stands under it) of a block of a terminal."""
    parts = re.split(r"^\$ ((?:.*\\\n)*.*)\n?", text, flags=re.M)
    assert not parts[0].strip(), "a block of a terminal begins with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def printed(command: str, folder: Path) -> str:
    """What a command prints, run in this process. AssertionError with what it says of misuse."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    if words[0] == "python":
        return _script(words[1:], folder)
    assert words[0] == "rewardspec", f"how is this run? {command}"
    done = run(*words[1:], cwd=folder)
    assert done.returncode in (0, 1), f"{command}: {done.stderr}"
    return re.sub(r" +$", "", done.stdout + done.stderr, flags=re.M).strip("\n")


def _script(words: list[str], folder: Path) -> str:
    """What a script of a page prints. What it imports from its folder is forgotten afterwards."""
    out, before, arguments = StringIO(), {*sys.modules}, sys.argv
    try:
        sys.path.insert(0, str(folder))
        sys.argv = words
        with chdir(folder), redirect_stdout(out), redirect_stderr(StringIO()):
            runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.argv = arguments
        sys.path.remove(str(folder))
        for name in {*sys.modules} - before:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
                del sys.modules[name]
    return out.getvalue().strip("\n")


def agrees(shown: str, now: str) -> bool:
    """Whether a text is what stands on a page, where a line `...` is any lines."""
    parts = [re.escape(part) for part in re.split(r"^ *\.\.\. *$", shown.strip("\n"), flags=re.M)]
    return re.fullmatch(".*".join(parts), now, re.S) is not None


def run_page(page: Path, folder: Path, regenerate: bool = False, edit: Callable[[str], str] = str) -> None:
    """Run the examples of a page. AssertionError with the line of what is not so.

    edit: makes files of the page shorter to run. Under `regenerate` what stands below a command becomes what it prints
    now: where it differs, where `?` is there to be filled in, and the pictures that commands draw.
    """
    names: dict[str, object] = {"__name__": page.stem}
    text, shift = page.read_text(encoding="utf-8"), 0
    for example in examples(page):
        where = f"{page.relative_to(ROOT)}:{example.line}"
        if "given" in example.said:
            with chdir(folder):
                exec(compile(example.said["given"], where, "exec"), names)
        if example.title:
            (folder / example.title).write_text(edit(example.text), encoding="utf-8")
        elif example.kind == "python" and "not run" in example.said:
            ast.parse(example.text)
        elif example.kind == "python":
            with chdir(folder), redirect_stdout(StringIO()):
                exec(compile(example.text, where, "exec"), names)
        elif example.kind == "console" and "not run" not in example.said:
            new = "".join(
                f"$ {command}\n{_compared(command, shown, example, folder, where, regenerate)}"
                for command, shown in commands(example.text)
            )
            if regenerate:
                start = example.start + shift
                text = text[:start] + new + text[start + len(example.text) :]
                shift += len(new) - len(example.text)
    if regenerate:
        page.write_text(text, encoding="utf-8")
        for image in IMAGE.findall(text):
            if (folder / image).exists():
                shutil.copy(folder / image, page.parent / image)


def _compared(command: str, shown: str, example: Example, folder: Path, where: str, regenerate: bool) -> str:
    """What stands under a command; of one whose output changed, the new one if it is to be written."""
    if command.startswith(OTHERS):
        return shown
    now = printed(command, folder)
    if not shown.strip() or "not compared" in example.said or agrees(shown, now):
        return shown
    assert regenerate, f"{where}: {command}\n--- shown\n{shown}\n--- now\n{now}"
    return now + "\n"
