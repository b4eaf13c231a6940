"""Progress of what takes longer than a moment: a bar on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any

from rewardspec.text.shown import Inert, shown

if TYPE_CHECKING:
    from rich.progress import Progress

SOON = 1.0  # seconds until the bar is shown

Show = Callable[..., None]  # show(label, done, of): of is None if nobody knows how much there is


@contextmanager
def progress(label: str) -> Iterator[Show | None]:
    """A function that says how far a command is; None if stderr is no terminal. The bar goes when the command is done.

    label: what is done, until the function says more.
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(label)
    timer = Timer(SOON, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar.show
    finally:
        timer.cancel()
        bar.stop()


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """The same for one thing: a function to be called with the number done and the number of all."""
    with progress(what) as show:
        yield lambda done, of: None if show is None else show(what, done, of)


class _Bar:
    """A bar that appears when `start` is called, by another thread than the one that calls `show`."""

    def __init__(self, label: str):
        self.state: dict[str, Any] = {"description": shown(label), "completed": 0, "total": None}
        self.bar: Progress | None = None
        self.over = False
        self.lock = Lock()

    def start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            Task,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import TimeRemainingColumn as TimeLeft
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

        with self.lock:
            if self.over:
                return
            said = TextColumn("{task.description}", markup=False)
            columns = said, BarColumn(), MofNCompleteColumn(), Rate(), TimeElapsedColumn(), TimeLeft(compact=True)
            out: Any = Inert(sys.stderr)
            self.bar = Progress(*columns, console=Console(file=out), transient=True)
            self.bar.add_task(**self.state)
            self.bar.start()

    def show(self, label: str, done: int = 0, of: int | None = None) -> None:
        with self.lock:
            self.state = {"description": shown(label), "completed": done, "total": of}
            if self.bar is not None:
                self.bar.update(self.bar.task_ids[0], **self.state)

    def stop(self) -> None:
        with self.lock:
            self.over = True
            if self.bar is not None:
                self.bar.stop()
