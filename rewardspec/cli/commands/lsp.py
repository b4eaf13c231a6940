"""`rewardspec lsp`: the language server, which editors start."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rewardspec.cli.printing.lines import misuse, say


def command(
    seconds: Annotated[
        float, typer.Option(help="The most that findings about one version may take. 0: errors only.", min=0)
    ] = 10.0,
    stdio: Annotated[
        bool,
        typer.Option(
            "--stdio",
            show_default=False,
            help="Talk over standard input and output, as without it; some editors add it.",
        ),
    ] = True,
) -> None:
    """Answer an editor: errors and findings as one types, hover, completion, rename, quick fixes, formatting.

    rewardspec lsp --seconds 30

    An editor starts it, and talks to it over standard input and output: docs/editors.md has the settings of VS Code,
    Neovim, Helix and Emacs. It runs no code of a spec.
    """
    try:
        from rewardspec.editor.server import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        misuse(f"`lsp` needs the package {error.name}: pip install 'rewardspec[lsp]'")
    if sys.stdin.isatty():
        say("an editor starts this, and talks to it here: docs/editors.md has the settings. Ctrl-C ends it.", err=True)
    serve(seconds)
