"""The examples of a page, run in order in one folder, as a reader would who copies them.

A block with `title="NAME"` becomes a file. Commands of rewardspec run in this process and print what stands under
them; a line `...` stands for any lines. Python runs, and shares its names. A comment before a block says otherwise:

    <!-- not run: why -->       another program, or a training run; a test of its own runs it where there is one
    <!-- not compared: why -->  it runs, and may print something else
    <!-- given: code -->        Python that is run first: what the page takes for granted
"""

import ast
import re
import shlex
import sys
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from commands_in_process import run
from places import ROOT

PAGES = sorted(ROOT.glob("docs/**/*.md"))
BLOCK = re.compile(r"^( *)```(?P<kind>\w+)?(?: +title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^\1```$", re.M | re.S)
SAID = re.compile(r"<!-- (not run|not compared|given): (.*?) -->\s*\Z", re.S)
INCLUDED = re.compile(r'^--8<-- "([^"]+)"$', re.M)
OTHERS = ("pip ", "make ", "git ", "code ", "cd ")  # commands that install, or that need no test here


@dataclass(frozen=True)
class Example:
    """A block. `said`: what the comments before it say, by word. `start`, `end`: of its text in the page."""

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
        inner = INCLUDED.sub(lambda m: (ROOT / m[1]).read_text(encoding="utf-8").rstrip("\n"), block["text"])
        inner = re.sub(f"^{block[1]}", "", inner, flags=re.M)
        line = text[: block.start()].count("\n") + 1
        found.append(Example(block["kind"] or "", block["title"], inner, said, block.start("text"), line))
        at = block.end()
    return found


def commands(text: str) -> list[tuple[str, str]]:
    """(command, what stands under it) of a block of a terminal."""
    parts = re.split(r"^\$ ((?:.*\\\n)*.*)\n?", text, flags=re.M)
    assert not parts[0].strip(), "a block of a terminal begins with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def printed(command: str, folder: Path) -> str:
    """What a command of rewardspec prints. Without one exit status of misuse."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    to = words[words.index(">") + 1] if ">" in words else None
    done = run(*words[1 : words.index(">")] if to else words[1:], cwd=folder)
    assert done.returncode in (0, 1), f"{command}: {done.stderr}"
    if to:
        (folder / to).write_text(done.stdout, encoding="utf-8")
        return ""
    return re.sub(r" +$", "", done.stdout + done.stderr, flags=re.M).strip("\n")


def agrees(shown: str, now: str) -> bool:
    """Whether a text is what stands on a page, where a line `...` is any lines."""
    parts = [re.escape(part) for part in re.split(r"^ *\.\.\. *$", shown.strip("\n"), flags=re.M)]
    return re.fullmatch(".*".join(parts), now, re.S) is not None


def run_page(page: Path, folder: Path, regenerate: bool = False) -> dict[str, object]:
    """The names that the page's Python has at its end. Raises AssertionError with the line of what is not so."""
    names: dict[str, object] = {"__name__": page.stem}
    text, shift = page.read_text(encoding="utf-8"), 0
    for example in examples(page):
        where = f"{page.relative_to(ROOT)}:{example.line}"
        if "given" in example.said:
            with chdir(folder):
                exec(compile(example.said["given"], where, "exec"), names)
        if example.title:
            (folder / example.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / example.title).write_text(example.text, encoding="utf-8")
        if "not run" in example.said:
            if example.kind == "python":
                ast.parse(example.text)
            continue
        if example.kind == "python" and not example.title:
            with chdir(folder):
                sys.path.insert(0, str(folder))
                try:
                    exec(compile(example.text, where, "exec"), names)
                finally:
                    sys.path.remove(str(folder))
        elif example.kind == "console":
            new = []
            for command, shown in commands(example.text):
                if command.startswith(OTHERS):
                    new.append((command, shown))
                    continue
                assert command.startswith("rewardspec "), f"{where}: how is this run? {command}"
                now = printed(command, folder)
                if not shown.strip() and not regenerate or "not compared" in example.said or agrees(shown, now):
                    now = shown.strip("\n")
                assert regenerate or agrees(shown, now), f"{where}: {command}\n--- shown\n{shown}\n--- now\n{now}"
                new.append((command, now))
            if regenerate:
                whole = "".join(f"$ {command}\n{shown.strip(chr(10))}\n" if shown.strip() else f"$ {command}\n" for command, shown in new)
                start = example.start + shift
                text = text[:start] + whole + text[start + len(example.text) :]
                shift += len(whole) - len(example.text)
    if regenerate:
        page.write_text(text, encoding="utf-8")
    return names
