"""Text of a spec, quoted for generated files: comments, shell, YAML, Hydra.

All text of a spec goes through one of these functions on its way into a generated file, or through `repr` for Python.

    python -m rewardspec.text.quoting TEXT     prints `hydra(TEXT)`, for shell scripts that pass a path on
"""

from __future__ import annotations

import io
import re
import shlex
import sys

from rewardspec.text.shown import inert

shell = shlex.quote


def comment(text: str, most: int = 200) -> str:
    """A text that is safe after `# ` in Python, shell and YAML: one line of printable characters.

    Line breaks (Unicode has seven), control characters and marks that change the direction of text become `?`.
    Not for the first two lines of a Python file: `coding:` in a comment there changes its encoding.
    """
    line = inert("".join(c if c.isprintable() else "?" for c in text))  # a CI job may print the module
    return line if len(line) <= most else line[: most - 3] + "..."


def python_file(head: list[str], body: str) -> str:
    """A Python file that begins with comments.

    head: the comments, any text, without `# `. body: source.
    """
    lines = ["# -*- coding: utf-8 -*-", *(f"# {comment(line)}".rstrip() for line in head if line)]
    return "\n".join(lines) + "\n" + body


def yaml(value: object) -> str:
    """A value of mappings, lists and texts as YAML that every YAML reader reads back, with a line break at the end.

    Texts of several lines are blocks after `|` if a block can represent them, else double-quoted with escapes.
    """
    from ruamel.yaml import YAML

    writer = YAML()
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.width = 10**6
    writer.version = None
    out = io.StringIO()
    writer.dump(_plain(value), out)
    return out.getvalue().removesuffix("...\n")


def _plain(value: object) -> object:
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, str):
        return value
    lines = value.split("\n")
    if len(lines) > 1 and value.strip() and all(line.isprintable() for line in lines) and value[0] not in " \n":
        return LiteralScalarString(value)
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", value) and value.lower() not in _WORDS:
        return value
    return DoubleQuotedScalarString(value)


_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}  # to YAML 1.1


def hydra(text: str) -> str:
    """A text as the quoted value of an override on Hydra's command line.

    In quotes, Hydra escapes a quote by a backslash, and a backslash only before a quote.
    Raises ValueError for `${`, which OmegaConf interpolates each time that a configuration is copied,
    and for `???`, which it reads as a missing value.
    """
    if "${" in text or text == "???":
        raise ValueError(f"Hydra interprets {text!r}: use another name")
    return "'" + re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text) + "'"


def main() -> None:
    """Print `hydra` of the first argument, or exit with the reason why it cannot be quoted."""
    try:
        print(hydra(sys.argv[1]))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
