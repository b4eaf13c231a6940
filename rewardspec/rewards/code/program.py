"""The program in a completion."""

from __future__ import annotations

import re
import textwrap

_PYTHON = ("python", "python3", "py")
# linear for any text: a run of backticks is matched from its start only
_OPENING = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n`~]*)\n", re.MULTILINE)


def program_of(completion: str) -> str:
    """The program in a completion; an empty text if there is none.

    It is the last fenced block marked as Python, or else the last block, or else the whole answer. The answer is the
    text after the first `</think>`. A block that is not closed extends to the end.
    """
    _, closed, rest = completion.partition("</think>")
    answer = rest if closed else completion
    blocks, at = [], 0
    while opening := _OPENING.search(answer, at):
        mark, least = opening[1][0], len(opening[1])
        # a fence at the end of the program's last line closes the block, too
        closing = re.compile(rf"(?<!{mark}){mark}{{{least},}}[ \t]*$", re.MULTILINE).search(answer, opening.end())
        at = closing.end() if closing else len(answer)
        language = opening[2].split()[:1]
        blocks.append((language, answer[opening.end() : closing.start() if closing else len(answer)]))
    marked = [content for language, content in blocks if language and language[0].lower() in _PYTHON]
    program = marked[-1] if marked else blocks[-1][1] if blocks else answer
    first = program.lstrip("\n")
    return textwrap.dedent(program) if first[:1] in (" ", "\t") else program  # a block in a list is indented
