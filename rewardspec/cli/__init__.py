"""The command line: one file per command in `commands/`, with shared options, reading and printing next to it.

Exit status: 0 clean, 1 errors in a spec, 2 misuse of the command, 130 interrupted.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import sys
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rewardspec._version import __version__
from rewardspec.cli.helping import unwrapped, with_words
from rewardspec.cli.plain import PlainCommand, taken_plainly
from rewardspec.cli.printing.lines import misuse
from rewardspec.text.diagnostics import nearest
from rewardspec.text.shown import shown

if TYPE_CHECKING:
    from typer._click import Command, Context  # typer carries click within itself

COMMANDS = "rewardspec.cli.commands"
UNWRITABLE = errno.ENOSPC, errno.EIO, errno.EDQUOT  # of standard output: a full disk
MANY = 100_000  # objects between two searches for garbage: a command makes few circles, and searching takes a twentieth


class _Commands(TyperGroup):
    """The commands, each imported on first use: `check` is the function `command` in `commands/check.py`."""

    def get_params(self, ctx: Context) -> list[Any]:
        return with_words(taken_plainly(super().get_params(ctx)))

    def invoke(self, ctx: Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            if not _is_cut_off():
                raise
            _say_no_more()
            raise typer.Exit(0) from None
        except OSError as error:
            if error.errno not in UNWRITABLE or error.filename is not None:
                raise
            _say_no_more()
            misuse(f"cannot write the output: {error.strerror}")

    def resolve_command(self, ctx: Context, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No command is named {shown(args[0])!r}{_instead(args[0], known)}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Context) -> list[str]:
        return sorted(found.name for found in iter_modules(import_module(COMMANDS).__path__))

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        module = import_module(f"{COMMANDS}.{cmd_name}")
        settings = getattr(module, "SETTINGS", None)
        about = unwrapped(module.command.__doc__)
        one.command(cmd_name, cls=PlainCommand, context_settings=settings, help=about)(module.command)
        return typer.main.get_command(one)


def _instead(word: str, known: list[str]) -> str:
    """What a word that is no command can have been meant as."""
    if word.endswith((".yaml", ".yml")):
        return f": write `rewardspec check {shown(word)}`"
    near = nearest(word, known)
    return f": did you mean `{near}`?" if near else ""


app = typer.Typer(
    cls=_Commands,
    help="Check reward specs and compile them to one torch advantage function.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"rewardspec {__version__}")
        raise typer.Exit


def _is_cut_off() -> bool:
    """Whether nobody reads standard output any more, as after `| head`; another pipe is that of a worker."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (AttributeError, OSError, ValueError):  # a system without it, an output that is no file
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _say_no_more() -> None:
    """Let what is still to be written to standard output go nowhere: the interpreter tries once more as it ends."""
    with suppress(OSError, ValueError):  # of an output that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Entry point of the `rewardspec` command."""
    gc.set_threshold(MANY)
    if sys.stdout is None:  # closed, as `>&-` does
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    app(prog_name="rewardspec")
