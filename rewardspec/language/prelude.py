"""The prelude (the definitions that ship with the language) and the dialects: the schemes as trainers compute them.

A dialect is a file like the prelude: numerics, and definitions that replace the prelude's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from rewardspec.language.declarations import Declarations
from rewardspec.language.reader import read_shipped
from rewardspec.ops.domain import Level
from rewardspec.resources import resource
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source


@cache
def dialects() -> tuple[str, ...]:
    """The names of the dialects, sorted."""
    return tuple(sorted(path.stem for path in resource("specs/dialects").glob("*.yaml")))


@cache
def prelude(dialect: str | None = None) -> Declarations:
    """The prelude, with the definitions of a dialect in place of its own."""
    own = _read(resource("specs/prelude.yaml" if dialect is None else f"specs/dialects/{dialect}.yaml"))
    if dialect is None:
        return own
    plain = prelude()
    values, functions = {**plain.values, **own.values}, {**plain.functions, **own.functions}
    return replace(own, values=values, functions=functions)


def _read(path: Path) -> Declarations:
    report = Report()
    declared = read_shipped(Source(path.name, path.read_text(encoding="utf-8")), report)
    assert not report.diagnostics, report.diagnostics[0].render()
    return declared


def under(declared: Declarations, dialect: str, report: Report) -> Declarations:
    """A spec's declarations under a dialect: the trainer's numerics and schemes, and the columns that those read."""
    trainer = prelude(dialect)
    for name in trainer.columns.keys() & declared.columns.keys():
        column = declared.columns[name]
        if column.level is not Level.ROLLOUT or column.domain.symbols:
            report.error(
                "dialect-column",
                f"the dialect `{dialect}` reads the column `{name}` as a number for each rollout",
                column.span,
                help=f"rename the column `{name}`",
            )
    for name in trainer.columns.keys() & declared.states.keys():
        message = f"the dialect `{dialect}` reads the column `{name}`, and the spec has a state of this name"
        report.error("dialect-column", message, declared.states[name].column.span, help=f"rename the state `{name}`")
    columns = {**trainer.columns, **declared.columns}
    return replace(declared, dialect=dialect, eps=trainer.eps, ddof=trainer.ddof, columns=columns)
