"""A progress bar for what takes more than a moment: rows done, rows a second, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from rewardspec.cli.printing.table import console

AFTER = 2.0  # seconds without a bar


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to be called with the number done and the number of all.

    The bar is on standard error, if that is a terminal, and is removed at the end. What takes less than two seconds
    has none.
    """
    out = console(stderr=True)
    if not out.is_terminal:
        yield lambda done, of: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    shown = Progress(*columns, console=out, transient=True)
    task = shown.add_task(what, total=None)
    began, started = monotonic(), False

    def tell(done: int, of: int) -> None:
        nonlocal started
        if not started and monotonic() - began > AFTER:
            shown.start()
            started = True
        shown.update(task, completed=done, total=of)

    try:
        yield tell
    finally:
        if started:
            shown.stop()


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")
