"""Text of a spec as other languages write it: what generated files are made of.

Nothing of a spec reaches a generated file but through one of these. For Python `repr` is what these are for others.

    python -m rewardspec.text.quoting TEXT     `hydra(TEXT)`, for shell scripts that hand a path on
"""

from __future__ import annotations

import io
import re
import shlex
import sys

from rewardspec.text.shown import inert

shell = shlex.quote


def comment(text: str, most: int = 200) -> str:
    """A text as what can stand after `# ` in Python, shell and YAML: one line of printable characters.

    Line breaks of any kind (Unicode has seven), controls, and marks that turn the direction of text are `?`.
    A Python file must not have one in its first two lines: `coding:` in a comment there changes what the file says.
    """
    line = inert("".join(c if c.isprintable() else "?" for c in text))  # a module may be printed in a CI job
    return line if len(line) <= most else line[: most - 3] + "..."


def python_file(head: list[str], body: str) -> str:
    """A Python file that begins with comments, whatever they say.

    head: lines, each a comment without its `# `. body: source.
    """
    lines = ["# -*- coding: utf-8 -*-", *(f"# {comment(line)}".rstrip() for line in head)]
    return "\n".join(lines) + "\n" + body


def yaml(value: object) -> str:
    """A value of mappings, lists and texts as YAML that every reader takes for it, a line break at its end.

    Texts of several lines are blocks after `|` where that holds them, else in double quotes with escapes.
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
    """A text as the value of an override on Hydra's command line: in quotes, whatever is in it.

    In quotes, Hydra escapes a quote by a backslash, and a backslash only where a quote follows.
    Raises ValueError for `${`, which OmegaConf reads anew each time that a configuration is copied,
    and for `???`, which it takes for a value that is absent.
    """
    if "${" in text or text == "???":
        raise ValueError(f"{text!r} has a meaning of its own in Hydra: give it another name")
    return "'" + re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text) + "'"


def main() -> None:
    """Print the first argument as `hydra` writes it; exit with the reason where it cannot."""
    try:
        print(hydra(sys.argv[1]))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
