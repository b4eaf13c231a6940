"""`rewardspec compile`: a spec as a Python module, or as files for a trainer's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.options import AllowPython, Dialect, File, Set, Trust, allowed_by, constants_of, refuse
from rewardspec.cli.printing.lines import misuse, say
from rewardspec.cli.reading import keep, loaded
from rewardspec.text.shown import shown


def command(
    file: File,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the module here.", show_default=False)
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Write the files for this trainer into the folder -o: trl, verl or openrlhf.",
            show_default=False,
            autocompletion=completing.words("trl", "verl", "openrlhf"),
        ),
    ] = None,
    split: Annotated[
        bool, typer.Option("--split", help="Write the runtime into a second file beside -o, and import it from there.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="With --target: overwrite other files.")] = False,
    dialect: Dialect = None,
    trust: Trust = False,
    allow_python: AllowPython = [],  # noqa: B006
    set_: Set = [],  # noqa: B006
    seed: Annotated[
        int | None,
        typer.Option(help="With --target verl or openrlhf: the seed of all random draws.", show_default=False),
    ] = None,
) -> None:
    """Compile a spec to a Python module that needs only torch, or to the files for a trainer's configuration.

    rewardspec compile spec.yaml -o advantage.py
    """
    if target is not None:
        refuse("cannot be combined with --target", **{"--split": split})
        _embed(file, target, output, force, dialect, set_, allowed_by(trust, allow_python), seed)
        return
    if seed is not None:
        misuse("--seed needs --target: pass a module its seed in the call")
    if force or trust or allow_python:
        given = {"--force": force, "--trust": trust, "--allow-python": allow_python}
        names = " and ".join(name for name, value in given.items() if value)
        misuse(
            f"{names} {'need' if ' and ' in names else 'needs'} --target: a module runs no functions, and -o replaces"
        )
    if split and (output is None or not output.stem.isidentifier() or output.suffix != ".py"):
        misuse("--split writes two modules, of which one imports the other: give a file with -o, such as advantage.py")
    spec = loaded(file, set_, dialect)
    if output is None:
        typer.echo(spec.python, nl=False)
        return
    runtime = f"{output.stem}_runtime"
    own, *beside = spec.python_split(runtime) if split else (spec.python,)
    files = {output: own, **{output.with_name(f"{runtime}.py"): text for text in beside}}
    for path in files:
        keep(path, file)
    for path, text in files.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            misuse(f"cannot write {shown(path)}: {error.strerror or error}")
        say(f"wrote {shown(path)}", err=True)


def _embed(
    file: Path,
    target: str,
    folder: Path | None,
    force: bool,
    dialect: str | None,
    settings: list[str],
    allowed: bool | tuple[str, ...],
    seed: int | None,
) -> None:
    from rewardspec.adapters.common.binding import BindingError
    from rewardspec.adapters.embedding import TARGETS, Occupied, embedded, write

    if target not in TARGETS:
        misuse(f"--target must be one of {', '.join(TARGETS)}, not {target!r}")
    if folder is None:
        misuse("--target writes several files: give a folder with -o")
    try:
        spec, constants = loaded(file, settings, dialect), constants_of(settings)
        for path in write(embedded(spec, target, allowed, constants, seed), folder, force):
            say(f"wrote {shown(path)}", err=True)
    except BindingError as error:
        misuse(str(error))
    except Occupied as error:
        misuse(f"{error}: use another folder, or add --force")
    except OSError as error:
        misuse(f"cannot write into {shown(folder)}: {error.strerror or error}")
