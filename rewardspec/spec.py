"""A spec that was read, checked and lowered, and variations of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import nan
from os import PathLike
from pathlib import Path
from typing import TypedDict, Unpack

from rewardspec._version import __version__
from rewardspec.function import AdvantageFunction
from rewardspec.ir.needs import Need, needs_below
from rewardspec.ir.node import canonical, walk
from rewardspec.ir.stack import deep_stack
from rewardspec.language.declarations import Column, Component, Declarations, State, Use
from rewardspec.language.files import read_file
from rewardspec.language.prelude import dialects, under
from rewardspec.language.published import located
from rewardspec.language.reader import read_declarations
from rewardspec.lower.lower import Decide, Lowering, lower
from rewardspec.lower.program import Program
from rewardspec.lower.single import total_of_one
from rewardspec.reward_tokens import RewardTokens
from rewardspec.syntax.expression import parse_expression
from rewardspec.syntax.tree import Expr, format_expr
from rewardspec.text.diagnostics import Diagnostic, Report, SpecError, shorten
from rewardspec.text.html import html_table
from rewardspec.text.shown import shown
from rewardspec.text.source import Source


@dataclass(frozen=True)
class Made:
    """How a spec was made from its text: the arguments of `loads`, and the methods called since."""

    constants: Mapping[str, str] = field(default_factory=dict)
    advantage: str | None = None
    calls: tuple[tuple[str, tuple[object, ...]], ...] = ()

    def then(self, method: str, *arguments: object) -> Made:
        return replace(self, calls=(*self.calls, (method, arguments)))


def _read_again(text: str, name: str, made: Made) -> Spec:
    spec = loads(text, name, constants=made.constants, advantage=made.advantage)
    methods: Mapping[str, Callable[..., Spec]] = {"under": Spec.under, "at": Spec.at}
    for method, arguments in made.calls:
        spec = methods[method](spec, *arguments)
    return spec


class Changes(TypedDict, total=False):
    """The declarations that `Spec.varied` can change, by their names in `Declarations`."""

    columns: Mapping[str, Column]
    components: Mapping[str, Component]
    uses: Mapping[str, Use]
    states: Mapping[str, State]
    outcome: Expr | None
    keep: Expr | None
    refill: Expr | None
    advantage: Expr | None
    guarantees: Mapping[str, Expr]
    eps: Fraction
    ddof: Fraction
    dialect: str | None
    given: Mapping[str, Fraction]


@dataclass(frozen=True, eq=False, repr=False)
class Spec:
    """A spec without errors.

    diagnostics: the warnings of the reader. Findings are not among them: `check` returns both.
    """

    source: Source = field(repr=False)
    declarations: Declarations = field(repr=False)
    program: Program = field(repr=False)
    diagnostics: tuple[Diagnostic, ...] = ()
    made: Made | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        weights = {name: weight for name, _, _, weight in self._components_shown}
        parts = [name if weight == "1" else f"{weight} {name}" for name, weight in weights.items()]
        said = [f"{len(self.diagnostics)} diagnostics"] if self.diagnostics else []
        return f"<Spec {self.name}: {'; '.join([', '.join(parts), f'advantage {self._advantage_shown}', *said])}>"

    def _repr_html_(self) -> str:
        title = f"{self.name}: advantage {self._advantage_shown}"
        said = "; ".join(diagnostic.message for diagnostic in self.diagnostics)
        states = [(f"{name} (state)", _expression(s.update), "", "") for name, s in self.declarations.states.items()]
        rows = [*self._components_shown, *states]
        return html_table(title, ("component", "value", "when", "weight"), rows, said)

    @property
    def _components_shown(self) -> list[tuple[str, str, str, str]]:
        """(name, value, gate, weight) of every component, as expressions."""
        declared = self.declarations.components
        return [
            (name, _expression(c.value), _expression(c.when), _expression(c.weight)) for name, c in declared.items()
        ]

    @property
    def _advantage_shown(self) -> str:
        return _expression(self.declarations.advantage)

    def __reduce__(self) -> tuple[object, ...]:
        """A spec is pickled as its text and read again, so that loading one is as safe as reading a file."""
        if self.made is None:
            from pickle import PicklingError

            raise PicklingError("this spec is a variation of another one: pickle that one")
        return _read_again, (self.source.text, self.source.name, self.made)

    @property
    def name(self) -> str:
        """The title of the spec, or else the name of its file, safe to print."""
        return shown(self.declarations.title or Path(self.source.name).stem)

    @property
    def about(self) -> str:
        said = (self.declarations.about, self.declarations.origin)
        return "\n".join(part for part in said if part is not None)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that the compiled function reads."""
        used = {node.attributes[0] for node in walk(self.program.roots) if node.op == "column"}
        return tuple(name for name in self.program.columns if name in used)

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists of `lists:` that the compiled function reads."""
        used = {node.level.name for node in walk(self.program.roots) if node.level.listed}
        return tuple(name for name in self.declarations.lists if name in used)

    @cached_property
    def needs(self) -> frozenset[Need]:
        """What the compiled function asks of a trainer, beside columns of its own.

        rewardspec.load("specs/gdpo/math.yaml").needs  # frozenset({"group", "batch", "tokens"})

        `group`: the rollouts of a group together. `batch`: all rollouts of the batch together. `step`, `total_steps`:
        the arguments of a call; `refill` needs `step`. `progress`: the spec reads it, and the set has `step` and
        `total_steps` too. `lists`: columns that hold a list for each rollout. `tokens`: the column `tokens`, unless a
        reward function of the spec fills it. `state`: values that the trainer hands from batch to batch; such a spec
        needs the whole `batch`, too. Without `batch` a spec can be computed one group at a time. What simplification
        removes from a spec asks for nothing.
        """
        program = self.program
        found = needs_below([*program.roots, *([] if program.total is None else [program.total])])
        found |= {"state", "batch"} if program.states else set()
        return found - {"tokens"} if "tokens" in self.declarations.uses else found

    @property
    def components(self) -> tuple[str, ...]:
        return tuple(component.name for component in self.program.components)

    @property
    def uses(self) -> Mapping[str, Use]:
        """The reward functions of the spec, by the column that they fill.

        These are the columns that the compiled function reads, and those that `only_when` of their functions compares.
        """
        declared = self.declarations.uses
        needed = {*self.columns}
        for name, use in declared.items():
            if name in self.columns and use.only_when is not None:
                needed |= {*self.compared(name)}
        return {name: use for name, use in declared.items() if name in needed}

    def compared(self, name: str) -> tuple[str, ...]:
        """The columns that `only_when` of a reward function compares."""
        return self._conditions[name].columns

    def asked(self, name: str, columns: Mapping[str, Sequence[object]]) -> list[bool]:
        """For each rollout whether `only_when` of a reward function is true, given the columns that it compares.

        Raises ValueError (RolloutError) for columns that the spec does not allow.
        """
        if not len(next(iter(columns.values()), ())):
            return []
        out = self._asking[name](columns, groups=1)
        return [value > 0 for value in out.advantages.tolist()]

    @cached_property
    def _asking(self) -> dict[str, AdvantageFunction]:
        """The `only_when` conditions of reward functions, compiled."""
        return {name: AdvantageFunction(condition) for name, condition in self._conditions.items()}

    @cached_property
    def _conditions(self) -> dict[str, Spec]:
        """The `only_when` conditions of reward functions, each as a separate spec."""
        uses = self.declarations.uses
        return {name: self.indicator(use.only_when) for name, use in uses.items() if use.only_when is not None}

    def indicator(self, holds: Expr) -> Spec:
        """A spec whose advantage is 1 where this condition holds, and 0 elsewhere: for each rollout, or item of a list.

        It needs what the condition reads, and nothing else. States that it reads are columns.
        """
        declared = replace(self.declarations, uses={})
        with deep_stack():
            return replace(self, declarations=declared, program=Lowering(declared, Report()).indicator(holds))

    def weighed(self, columns: Collection[str]) -> Callable[[Mapping[str, Sequence[object]]], list[float]] | None:
        """A function of these columns to the weighted total of each rollout, [N].

        The total is the spec's own `total` if these columns decide it, else the weighted sum over components.
        Components that depend on the group, the batch or another column are left out of the sum, and so are those of a
        list's level and missing values. Schedules have their value at the end of the run; those that grow with `step`
        without bound are left out. None if nothing is left. A value that the spec does not allow gives NaN for all
        rollouts.
        """
        own_total = "total" in self.declarations.values
        total = total_of_one(self.program, self._ended.program, columns, own_total)
        if total is None:
            return None
        program = replace(self._ended.program, advantage=total, components=[], states={}, keep=None, copies=None)
        function = AdvantageFunction(Spec(self.source, self.declarations, program))

        def totals(given: Mapping[str, Sequence[object]]) -> list[float]:
            try:
                found: list[float] = function(given, groups=1).advantages.tolist()
            except function.RolloutError:
                found = [nan] * len(next(iter(given.values())))
            return found

        return totals

    @cached_property
    def _ended(self) -> Spec:
        """The spec at the end of a long run."""
        return self.at(step=LONG, total_steps=LONG, progress=Fraction(1))

    @property
    def condition(self) -> RewardTokens | None:
        """The reward tokens of `condition:`; None if the spec has none."""
        declared = self.declarations.reward_tokens
        return None if declared is None else RewardTokens.of(declared)

    @property
    def dialect(self) -> str | None:
        """The trainer whose numerical conventions the spec follows; None for the spec's own."""
        return self.declarations.dialect

    def under(self, dialect: str) -> Spec:
        """The spec with the numerical conventions of a trainer: `trl`, `verl`, `openrlhf` or `nemo_rl`.

        Its schemes then give the trainer's built-in numbers, except where a law of the language differs. The
        dialect replaces `numerics:` of the spec. Raises ValueError for an unknown dialect, SpecError for a spec that
        cannot follow it.
        """
        if dialect not in dialects():
            raise ValueError(f"dialect {shorten(str(dialect))!r} is not known; there are {', '.join(dialects())}")
        report = Report()
        changed = under(self.declarations, dialect, report)
        if report.failed:
            raise SpecError(report.sorted())
        varied = self.varied(dialect=dialect, eps=changed.eps, ddof=changed.ddof, columns=changed.columns)
        return replace(varied, made=self.made and self.made.then("under", dialect))

    def at(
        self, step: int | Fraction | None = None, total_steps: int | None = None, progress: Fraction | None = None
    ) -> Spec:
        """The spec at one moment of training: `step`, `total_steps` and `progress` are constants, as far as given."""
        given = {"step": step, "total_steps": total_steps, "progress": progress}
        varied = self.varied(given={name: Fraction(value) for name, value in given.items() if value is not None})
        return replace(varied, made=self.made and self.made.then("at", step, total_steps, progress))

    def varied(self, *, decide: Decide | None = None, **changes: Unpack[Changes]) -> Spec:
        """The spec with some declarations replaced, lowered again.

        `spec.varied(given={"step": Fraction(100)})` is the spec at step 100; `spec.varied(keep=None)` keeps all groups.
        A declaration is replaced as a whole: to change one component, pass all components.
        decide: the node that `advantage` means in guarantees, given the advantage itself.
        Raises SpecError for a variation with errors. A variation has no text, so it cannot be pickled.
        """
        report = Report()
        declared = replace(self.declarations, **changes)
        with deep_stack():
            program = lower(declared, report, decide)
        if program is None:
            raise SpecError(report.sorted())
        return Spec(self.source, declared, program, self.diagnostics)

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that identify what the spec computes: texts with equal values share them."""
        program = self.program
        roots = program.roots
        policies = [
            f"{c.name} {c.domain} {c.missing} {c.clip} {c.gated}" for c in (program.columns[n] for n in self.columns)
        ]
        condition = "" if self.condition is None else f"{self.condition} {canonical(list(program.labels.values()))}"
        parts = [*self.components, str(program.eps), *policies, canonical(roots), str(program.keep is None), condition]
        parts += [f"{name}: {use}" for name, use in self.uses.items()]
        states = [state.declared for state in program.states.values()]
        parts += [f"{s.name}: {s.init} {s.column.domain} {s.by} {s.most}" for s in states]
        parts += [self._conditions[name].fingerprint for name in self.uses if name in self._conditions]
        import hashlib

        text = "\n".join(parts)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @cached_property
    def python(self) -> str:
        """The source of the compiled module."""
        from rewardspec.emit.emitter import emit_module

        with deep_stack():
            return emit_module(self.program, self._heading)

    def python_split(self, runtime: str) -> tuple[str, str]:
        """The compiled module in two: what the spec is, and the runtime that it imports from the module `runtime`."""
        from rewardspec.emit.emitter import emit_split

        with deep_stack():
            return emit_split(self.program, self._heading, runtime)

    @property
    def _heading(self) -> list[str]:
        from rewardspec.emit.heading import heading

        return heading(self.declarations, self.name, self.fingerprint, __version__)


LONG = 10**6  # steps


def check(
    source: Source, constants: Mapping[str, str] = {}, advantage: str | None = None
) -> tuple[Spec | None, Report]:
    """The spec in a source, None if it has errors, and all diagnostics.

    constants: texts for names of `define:`. advantage: an expression that replaces the spec's advantage.
    """
    with deep_stack():
        return _check(source, constants, advantage)


def _check(source: Source, constants: Mapping[str, str], advantage: str | None) -> tuple[Spec | None, Report]:
    report = Report()
    declared = read_declarations(source, report, constants)
    if declared is not None and advantage is not None:
        other = Source("--advantage", advantage)
        declared = replace(declared, advantage=parse_expression(advantage, other.span, report))
    program = lower(declared, report) if declared is not None else None
    if declared is None or program is None or report.failed:
        return None, report
    return Spec(source, declared, program, tuple(report.sorted()), Made(dict(constants), advantage)), report


def loads(
    text: str, name: str = "<spec>", *, constants: Mapping[str, object] = {}, advantage: str | None = None
) -> Spec:
    """The spec in a text.

    spec = rewardspec.loads("rewardspec: 1\\ncomponents: {correct: {values: [0, 1]}}\\nadvantage: grpo\\n")

    constants: values for names of `define:`, which replace those of the spec.
    advantage: an expression that replaces the spec's advantage: the same rewards under another scheme.
    Raises SpecError with all errors, TypeError for a text that is no str.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    spec, report = check(Source(name, text), {key: constant_text(value) for key, value in constants.items()}, advantage)
    if spec is None:
        raise SpecError(report.sorted())
    return spec


def constant_text(value: object) -> str:
    """A constant as a spec would write it."""
    try:
        return str(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "1e999"


def _expression(expr: Expr | None) -> str:
    """An expression on one line, to be shown; empty for None."""
    return "" if expr is None else shorten(format_expr(expr), 80)


def load(path: str | PathLike[str], *, constants: Mapping[str, object] = {}, advantage: str | None = None) -> Spec:
    """The spec in a file, as `loads` reads it.

    spec = rewardspec.load("spec.yaml", constants={"limit": 2000})
    spec = rewardspec.load("gdpo/math")  # a published spec

    A file of that name wins over a published spec, and a warning says so. Raises SpecError; OSError for a file that
    cannot be read; ValueError for the text of a spec.
    """
    if is_text(path):
        raise ValueError("this is the text of a spec, not the name of a file: read it with `rewardspec.loads(text)`")
    source, report = read_file(path)
    if note := located(path).note:
        warnings.warn(note, stacklevel=2)
    if source is None:
        raise SpecError(report.sorted())
    return loads(source.text, source.name, constants=constants, advantage=advantage)


def is_text(given: object) -> bool:
    """Whether a value is the text of a spec, not the name of a file."""
    return isinstance(given, str) and ("\n" in given or given.lstrip().startswith("rewardspec:"))


def compile(spec: Spec | str | PathLike[str], *, dialect: str | None = None) -> AdvantageFunction:
    """The advantage function of a spec, of a file, or of a published spec by its name.

    fn = rewardspec.compile("gdpo/math")
    fn({"correct": [1, 0], "tokens": [900, 5000]}, groups=2).advantages

    dialect: `trl`, `verl`, `openrlhf` or `nemo_rl` for the numerical conventions of that trainer (`Spec.under`). verl
    and OpenRLHF whiten over response tokens, so with them `whiten` reads the column `tokens`.
    The function can be pickled; `torch.compile` does not compile it, but calls it, and compiles its `ahead`.
    Raises SpecError for a file with errors, ValueError for an unknown dialect.
    """
    if not isinstance(spec, Spec):
        spec = load(spec)
    if dialect is not None:
        spec = spec.under(dialect)
    return AdvantageFunction(spec)
