"""Markdown, as a terminal shows it."""

from __future__ import annotations

import sys
from typing import Any

from rewardspec.cli.printing.terminal import width
from rewardspec.text.shown import Inert, printed


def show_markdown(text: str) -> None:
    """Print Markdown, wrapped to the terminal: headings, lists, tables and code as such."""
    from rich.console import Console
    from rich.markdown import Markdown

    out: Any = Inert(sys.stdout)
    Console(file=out, width=width()).print(Markdown(printed(text), code_theme="ansi_dark"))
