"""What a spec declares: one form of each declaration, read but not yet given meaning.

Everything below stands on these. Neither YAML nor the tables of keys are known past the reader (`reader.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from rewardspec.language.place import Place
from rewardspec.ops.domain import Domain, Level
from rewardspec.syntax.tree import Expr, Signature
from rewardspec.text.source import Source, Span

if TYPE_CHECKING:
    from rewardspec.rewards.reward import Reward

MOST_COMPONENTS = 64
AXES = ("group", "batch", "components")
GIVEN = (
    *("step", "total_steps", "progress", "group_size", "batch_size"),
    *("pi", "eps", "rewards", "weights", "missing", "copies"),
)
RESERVED = frozenset({*AXES, *GIVEN, "advantage", "raw", "ignore"})


@dataclass(frozen=True, eq=False)
class Column:
    """What is measured: a column of the rollouts."""

    name: str
    span: Span
    declared: Domain  # what a value that is measured can be
    domain: Domain  # the same, and the 0 that stands for a missing one
    domain_span: Span
    level: Level
    missing: str  # "error", "ignore" or "zero"
    clip: bool
    gated: bool = False  # a closed gate replaces a missing value, so the gate decides, not the column


@dataclass(frozen=True, eq=False)
class Use:
    """A column that a reward function fills.

    reward: None for a function of the user's, whose place is `python`. inputs: for each input of the reward the
    column of the data set that holds it. only_when: asked only where this holds, missing elsewhere.
    """

    column: str
    span: Span
    reward: Reward | None
    python: str | None
    options: Mapping[str, object]
    inputs: Mapping[str, str]
    only_when: Expr | None
    domain: Domain | None

    def __str__(self) -> str:
        fields = self.reward.model.model_fields if self.reward is not None else {}
        given: dict[str, object] = {k: v for k, v in self.inputs.items() if k != v}
        given |= {k: v for k, v in self.options.items() if v != fields[k].default}
        said = ", ".join(f"{name}={value}" for name, value in given.items())
        when = f" only when {self.only_when.span.text}" if self.only_when is not None else ""
        name = self.reward.name if self.reward is not None else ""
        return (self.python or name) + (f"({said})" if said else "") + when


@dataclass(frozen=True, eq=False)
class Definition:
    """A name or function of the prelude or of `define:`."""

    signature: Signature
    body: Expr | None  # None where it could not be read
    prelude: bool

    @property
    def name(self) -> str:
        return self.signature.name


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of a component, as it is written: what it adds, and its own condition."""

    add: Expr
    when: Expr | None


@dataclass(frozen=True, eq=False)
class Component:
    """What is rewarded: its shaped value and its weight as expressions, and the keys they come from.

    `component.says("scale")` tells whether a key was written, `component.place.of("scale")` where.
    """

    name: str
    place: Place
    value: Expr | None  # with stages, scale and gate in it; None where something in them is wrong
    weight: Expr | None  # 1 where none was written
    when: Expr | None = None
    stages: tuple[Stage, ...] = ()
    allow: Mapping[str, Span] = field(default_factory=dict)  # findings that are meant here, with their places

    @property
    def span(self) -> Span:
        return self.place.name

    def says(self, key: str) -> bool:
        """Whether the spec has this key for the component."""
        return key in self.place


@dataclass(frozen=True, eq=False)
class RewardTokens:
    """The `condition:` of a spec: the tokens, how often each is drawn, and which trajectory has which."""

    span: Span
    tokens: Mapping[str, str]  # name to text
    prior: Mapping[str, Fraction]  # name to probability; adds up to 1
    labels: Mapping[str, Expr]  # name to condition, of all but the last; empty where the spec says none
    template: str  # with `{prompt}` and `{token}`


@dataclass(frozen=True, eq=False)
class Declarations:
    """Everything a spec declares.

    `place` is the whole file, key by key: `place.of("advantage")` is the text of the advantage.
    """

    source: Source
    place: Place
    title: str | None = None  # the text under `name:`
    about: str | None = None
    origin: str | None = None  # the text under `source:`: paper, section, equation
    columns: Mapping[str, Column] = field(default_factory=dict)
    components: Mapping[str, Component] = field(default_factory=dict)
    values: Mapping[str, Definition] = field(default_factory=dict)  # definitions without parameters
    functions: Mapping[str, Definition] = field(default_factory=dict)  # definitions with parameters
    uses: Mapping[str, Use] = field(default_factory=dict)  # columns that reward functions fill
    outcome: Expr | None = None  # under which a rollout is right
    keep: Expr | None = None
    refill: Expr | None = None
    advantage: Expr | None = None
    guarantees: Mapping[str, Expr] = field(default_factory=dict)
    reward_tokens: RewardTokens | None = None
    allow: Mapping[str, Span] = field(default_factory=dict)  # findings that are meant, with their places
    eps: Fraction = Fraction(1, 10**6)
    ddof: Fraction = Fraction(1)
    dialect: str | None = None
    given: Mapping[str, Fraction] = field(default_factory=dict)  # `step` and the like, where they are known already
    damaged: frozenset[str] = frozenset()  # names whose declaration is wrong: no more is said of them
