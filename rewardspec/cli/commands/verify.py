"""`rewardspec verify`: proofs of guarantees, or the smallest group that breaks one."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli.options import Dialect, Files, Items, Set, TableOrJson, one_of, sizes_of
from rewardspec.cli.printing.lines import misuse, ranges, say, say_json
from rewardspec.cli.printing.progress import progress
from rewardspec.cli.printing.verdicts import safe_weights, show_verdicts
from rewardspec.cli.reading import NAME_OF_STDIN, STDIN, expanded, loaded
from rewardspec.groups.points import ITEMS
from rewardspec.prove.verify import INTERRUPTED, REFUTED, Verdict, verify
from rewardspec.spec import Spec


def command(
    files: Files,
    group_sizes: Annotated[
        str, typer.Option("-g", "--group-size", metavar="SIZES", help="Group sizes: `2,4,8` or `2..8`.")
    ] = "2..8",
    solve: Annotated[
        str, typer.Option(metavar="weight:NAME", help="Find the weights at which no guarantee is broken.")
    ] = "",
    items: Items = ITEMS,
    format: TableOrJson = "table",
    dialect: Dialect = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Prove the guarantees of specs, or show the smallest group that breaks one (exit status 1).

    rewardspec verify spec.yaml -g 2..8 --solve weight:length
    """
    one_of(format, "table", "json")
    sizes = sizes_of(group_sizes)
    specs = [(path, loaded(path, set_, dialect)) for path in expanded(files)]
    if solve:
        _solve([spec for _, spec in specs], solve, sizes, format, items)
        return
    if not any(spec.program.guarantees for _, spec in specs):
        misuse("no spec has `guarantees:`; `rewardspec list definitions` shows ready-made ones")
    found = _verified(specs, sizes, items)
    if format == "json":
        rows = [
            {
                "file": NAME_OF_STDIN if path == STDIN else str(path),
                "spec": spec.name,
                "guarantees": [v.to_json() for v in verdicts],
            }
            for path, spec, verdicts in found
        ]
        say_json({"rows": rows})
    else:
        show_verdicts([(spec, verdicts) for _, spec, verdicts in found])
    verdicts = [verdict for _, _, own in found for verdict in own]
    broken_off = any(verdict.reason == INTERRUPTED for verdict in verdicts)
    raise typer.Exit(1 if any(v.status == REFUTED for v in verdicts) else 130 if broken_off else 0)


def _verified(specs: list[tuple[Path, Spec]], sizes: list[int], items: int) -> list[tuple[Path, Spec, list[Verdict]]]:
    """The verdicts on every spec, until interrupted; progress is shown on a terminal."""
    found = []
    with progress("verifying") as show:
        for path, spec in specs:

            def tell(size: int, tried: int, of: int, label: str = spec.name) -> None:
                assert show is not None
                show(f"{label}, groups of {size}", tried, of)

            found.append((path, spec, verify(spec, sizes, show and tell, items=items)))
            if any(verdict.reason == INTERRUPTED for verdict in found[-1][2]):
                break
    return found


def _solve(specs: list[Spec], what: str, sizes: list[int], format: str, items: int) -> None:
    """Print the safe weights of a component; exit status 1 if a spec has none."""
    from rewardspec.prove.solve import solve_weight

    kind, _, name = what.partition(":")
    if kind != "weight" or not name:
        misuse(f"--solve needs weight:NAME, not {what!r}")
    found = []
    with progress("solving") as show:
        for spec in specs:
            if not spec.program.guarantees:
                misuse(f"{spec.name} has no `guarantees:` to limit a weight")

            def tell(weight: Fraction, label: str = spec.name) -> None:
                assert show is not None
                show(f"{label}: {name} {float(weight):.9g}")

            try:
                found.append((spec.name, solve_weight(spec, name, sizes, progress=show and tell, items=items)))
            except ValueError as error:
                misuse(str(error))
    if format == "json":
        say_json({"rows": [{"spec": label, **asdict(s)} for label, s in found]})
    else:
        for label, s in found:
            say(f"{label}, groups of {ranges(sizes)}: `{name}`: {safe_weights(s)}")
    raise typer.Exit(1 if any(s.is_none for _, s in found) else 0)
