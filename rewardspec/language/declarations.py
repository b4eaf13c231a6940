"""The declarations of a spec: read, not yet lowered to a graph.

The later stages see only these. YAML and the tables of keys end at the reader (`reader.py`).
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
MOST_LISTS = 8
AXES = {
    "group": "the rollouts of one prompt: `mean(x)` is `mean(x, over=group)`, one value for each group",
    "batch": "all rollouts of a step: `mean(x, over=batch)` is one value for the batch",
    "components": "the values of a bundle: `sum(rewards, over=components)` is one value for each rollout",
}
NO_LISTS = frozenset({*AXES, "rollout"})  # names that no list can have
GIVEN = {
    "step": "the step of training, a whole number from 0; the call passes it",
    "total_steps": "the length of training in steps; the call passes it",
    "progress": "`step / total_steps`, clipped to [0, 1]",
    "group_size": "the number of rollouts in the group",
    "batch_size": "the number of rollouts in the batch, kept or not",
    "pi": "3.14159...",
    "eps": "`numerics: eps`, which `zscore` adds to the standard deviation",
    "rewards": "the bundle of all components: one value for each of them, after gate and `otherwise`",
    "weights": "the bundle of the weights of all components",
    "missing": "the missing value: `total if measured else missing`",
    "copies": "how often a group is in the batch, 0 if it is dropped; in `advantage` and `guarantees` only",
}
OF_PLACES = {  # names with a meaning in some places alone
    "advantage": "the advantage of the spec; in `guarantees` only",
    "ignore": "`otherwise: ignore`: where the gate is closed, the component is missing and takes no part",
    "position": "the place of an item in its list, from 1",
}
RESERVED = frozenset({*AXES, *GIVEN, "advantage", "raw", "ignore"})


@dataclass(frozen=True, eq=False)
class Column:
    """A measured column of the rollouts."""

    name: str
    span: Span
    declared: Domain  # of measured values
    domain: Domain  # the same, with the 0 that replaces a missing value
    domain_span: Span
    level: Level
    missing: str  # "error", "ignore" or "zero"
    clip: bool
    gated: bool = False  # missing only where a gate is closed, which replaces the value


@dataclass(frozen=True, eq=False)
class ItemList:
    """A list inside every rollout. ordered: its items follow each other, so `before` and `returns` have a meaning."""

    name: str
    place: Place
    ordered: bool


@dataclass(frozen=True, eq=False)
class Use:
    """A column that a reward function fills.

    reward: None for the user's own function, whose path is `python`. inputs: for each input of the reward the
    column of the data set that holds it. only_when: called where this is true, missing elsewhere. of: the list whose
    level the column has: the function gives a list for each rollout; None where it gives one value.
    """

    column: str
    span: Span
    reward: Reward | None
    python: str | None
    options: Mapping[str, object]
    inputs: Mapping[str, str]
    only_when: Expr | None
    domain: Domain | None
    of: str | None = None

    def __str__(self) -> str:
        defaults = self.reward.defaults if self.reward is not None else {}
        given: dict[str, object] = {k: v for k, v in self.inputs.items() if k != v}
        given |= {k: v for k, v in self.options.items() if v != defaults[k]}
        said = ", ".join(f"{name}={value}" for name, value in given.items())
        when = f" only when {self.only_when.span.text}" if self.only_when is not None else ""
        name = self.reward.name if self.reward is not None else ""
        return (self.python or name) + (f"({said})" if said else "") + when


@dataclass(frozen=True, eq=False)
class Definition:
    """A name or function of the prelude or of `define:`."""

    signature: Signature
    body: Expr | None  # None if it did not parse
    prelude: bool

    @property
    def name(self) -> str:
        return self.signature.name


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of a component as written: the value that it adds, and its own condition."""

    add: Expr
    when: Expr | None


@dataclass(frozen=True, eq=False)
class Component:
    """A component: its shaped value and its weight as expressions, and the keys that they come from.

    `component.says("scale")` is whether a key was written, `component.place.of("scale")` where.
    """

    name: str
    place: Place
    value: Expr | None  # includes stages, scale and gate; None if something in them is wrong
    weight: Expr | None  # 1 where none was written
    when: Expr | None = None
    stages: tuple[Stage, ...] = ()
    allow: Mapping[str, Span] = field(default_factory=dict)  # allowed findings, with their places

    @property
    def span(self) -> Span:
        return self.place.name

    def says(self, key: str) -> bool:
        """Whether the component has this key."""
        return key in self.place


@dataclass(frozen=True, eq=False)
class State:
    """A value that is carried from batch to batch.

    column: its value before the batch, as lowering reads it: one for the batch, or with `by` one for each group. by:
    the column that has the keys. most: the number of keys that are kept.
    """

    column: Column
    place: Place
    init: Fraction
    update: Expr
    by: str | None
    most: int
    about: str | None = None

    @property
    def name(self) -> str:
        return self.column.name


@dataclass(frozen=True, eq=False)
class RewardTokens:
    """The `condition:` of a spec: the tokens, the probability of each, and the conditions that assign them."""

    span: Span
    tokens: Mapping[str, str]  # name to text
    prior: Mapping[str, Fraction]  # name to probability; adds up to 1
    labels: Mapping[str, Expr]  # name to condition, all but the last; empty if the spec has none
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
    lists: Mapping[str, ItemList] = field(default_factory=dict)
    columns: Mapping[str, Column] = field(default_factory=dict)
    components: Mapping[str, Component] = field(default_factory=dict)
    values: Mapping[str, Definition] = field(default_factory=dict)  # definitions without parameters
    functions: Mapping[str, Definition] = field(default_factory=dict)  # definitions with parameters
    uses: Mapping[str, Use] = field(default_factory=dict)  # columns that reward functions fill
    states: Mapping[str, State] = field(default_factory=dict)  # values carried from batch to batch
    outcome: Expr | None = None  # the condition that makes a rollout right
    keep: Expr | None = None
    refill: Expr | None = None
    advantage: Expr | None = None
    guarantees: Mapping[str, Expr] = field(default_factory=dict)
    reward_tokens: RewardTokens | None = None
    allow: Mapping[str, Span] = field(default_factory=dict)  # allowed findings, with their places
    eps: Fraction = Fraction(1, 10**6)
    ddof: Fraction = Fraction(1)
    dialect: str | None = None
    given: Mapping[str, Fraction] = field(default_factory=dict)  # fixed values of `step`, `progress` and others
    damaged: frozenset[str] = frozenset()  # names whose declaration is wrong: not reported again
