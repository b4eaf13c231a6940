"""A run that was logged: its rollouts, one step of training after another."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Advantage: TypeAlias = float | list[float | None] | None


@dataclass(frozen=True)
class Call:
    """What the spec was called with, beside the rollouts of a batch.

    fingerprint: of the spec. state: the one before the batch, of states with keys those of the batch; None for a spec
    without. seed: of the draws of `refill`.
    """

    fingerprint: str
    total_steps: int | None = None
    seed: int = 0
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Step:
    """The rollouts of one step, N of them, in the log's order.

    number: of the step, from 0 or 1 as the trainer counts; None if the log does not say.
    groups: [N], what the rollouts of one prompt share.
    columns: name to [N] values as logged: rewards under the names of their functions, everything else that was
        measured, and `prompt` and `completion` if there is text. None is missing. An item of a list is in a list.
    advantages: [N], what the trainer computed, a list where items have them; None if that was not logged.
    places: [N], the file and the row, from 1.
    call: how they were computed, if the log says so.
    """

    number: int | None
    groups: Sequence[Hashable]
    columns: Mapping[str, Sequence[Any]]
    advantages: Sequence[Advantage] | None = None
    places: Sequence[tuple[Path, int]] = field(default=(), repr=False)
    call: Call | None = None

    def __len__(self) -> int:
        return len(self.groups)


@dataclass(frozen=True)
class Trained:
    """The spec that a run was trained under: its text, constants of `define:` as texts, and the trainer's dialect.

    advantage: an expression in place of the text's own. total_steps: the length of training, if it is known.
    """

    text: str = field(repr=False)
    constants: Mapping[str, str] = field(default_factory=dict)
    advantage: str | None = None
    dialect: str | None = None
    total_steps: int | None = None


@dataclass(frozen=True)
class Run:
    """A run, as its files hold it. `steps()` reads them anew each time, and holds one step in memory.

    format: what wrote the files, such as `trl`.
    lost: what the files do not hold and nothing can recover, a sentence each.
    columns: the names that steps have.
    spec: what the run was trained under, if the log has it.
    steps: function to the steps, in order. Raises BadLog with all wrong rows of a step, OSError.
    """

    paths: tuple[Path, ...]
    format: str
    columns: tuple[str, ...]
    steps: Callable[[], Iterator[Step]] = field(repr=False)
    lost: tuple[str, ...] = ()
    spec: Trained | None = None

    @property
    def total_steps(self) -> int | None:
        """The length of training, if the log says it."""
        return None if self.spec is None else self.spec.total_steps
