"""Progress of what takes longer than a moment: a bar on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, TypeVar

from rewardspec.text.shown import Inert, shown

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
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
def bar(what: str, then: str | None = None) -> Iterator[Callable[[int, int], None]]:
    """The same for one thing: a function to be called with the number done and the number of all.

    then: what goes on when all are done.
    """
    with progress(what) as show:
        yield (
            lambda done, of: (
                None if show is None else show(then) if then is not None and done >= of else show(what, done, of)
            )
        )


def counted(lines: Iterable[T], show: Show | None, what: str) -> Iterator[T]:
    """The same things, while `show` says how many were taken."""
    for number, line in enumerate(lines):
        if show is not None and number % 100 == 0:
            show(what, number)
        yield line


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

        class Count(ProgressColumn):
            def render(self, task: Task) -> Text:
                of = "" if task.total is None else f"/{task.total:,.0f}"
                return Text(f"{task.completed:,.0f}{of}" if of or task.completed else "")

        with self.lock:
            if self.over:
                return
            said = TextColumn("{task.description}", markup=False)
            columns = said, BarColumn(), Count(), Rate(), TimeElapsedColumn(), TimeLeft(compact=True)
            out: Any = Inert(sys.stderr)
            self.bar = Progress(*columns, console=Console(file=out), transient=True)
            self.bar.add_task(**self.state)
            self.bar.start()

    def show(self, label: str, done: int = 0, of: int | None = None) -> None:
        with self.lock:
            self.state = {"description": shown(label), "completed": done, "total": of}
            if self.bar is not None:
                self.bar.tasks[0].total = of  # which `update` does not set to None
                self.bar.update(self.bar.task_ids[0], **self.state)

    def stop(self) -> None:
        with self.lock:
            self.over = True
            if self.bar is not None:
                self.bar.stop()
