"""The pages that commands write."""

from __future__ import annotations

from pathlib import Path

from rewardspec.cli.printing.lines import misuse, say
from rewardspec.cli.reading import STDIN
from rewardspec.text.shown import shown


def check_page(output: Path | None, *reads: Path) -> None:
    """End the command, before it computes anything, if a page cannot be drawn or not be written there."""
    if output is None:
        return
    from rewardspec.logs.outputs import BadPath
    from rewardspec.pages import page

    if output == STDIN:
        misuse("a page is written into a file, not to standard output")
    try:
        page.check_page(output, [path for path in reads if path != STDIN])
    except (BadPath, page.NoLibrary) as error:
        misuse(str(error))


def write_page(output: Path, text: str) -> None:
    """Write a page; one that cannot be written ends the command."""
    from rewardspec.pages import page

    try:
        page.write_page(output, text)
    except OSError as error:
        misuse(f"cannot write {shown(output)}: {error.strerror or error}")
    say(f"wrote {shown(output)}", err=True)
