"""Random specs over what the language has, but for lists, ids and state."""

import random
from dataclasses import dataclass, field
from fractions import Fraction

from reference.expressions import BATCH, GROUP, ROLLOUT, Expressions

F = Fraction

# What a column can be: (yaml, values that a batch draws from). Halves and quarters are exact in every float type, so
# that most ties are ties in floats, too; tenths are not, on purpose.
BINARY = ("values: [0, 1]", [F(0), F(1)])
KINDS = [
    BINARY,
    BINARY,
    ("values: [0, 0.5, 1]", [F(0), F(1, 2), F(1)]),
    ("values: [-1, 0, 1]", [F(-1), F(0), F(1)]),
    ("values: [0, 1, 2, 3]", [F(0), F(1), F(2), F(3)]),
    ("values: [0, 0.1, 0.6, 0.7]", [F(0), F(1, 10), F(3, 5), F(7, 10)]),
    ("values: [-1/3, 1/3]", [F(-1, 3), F(1, 3)]),
    ("range: [0, 1]", [F(n, 4) for n in range(5)]),
    ("range: [-2, 2]", [F(n, 4) for n in range(-8, 9)]),
    ("range: [0, .inf]", [F(n) for n in (0, 1, 3, 8, 8, 20)]),
]
EPISODES = ("range: [0, .inf]", [F(1732232301 + n) for n in range(3)])  # ids that float32 cannot hold
SCHEMES = ["total", "grpo", "dr_grpo", "rloo", "decoupled", "gdpo", "batch_grpo", "reinforce_baseline"]
CLAIMS = [
    "right_above_wrong({c})",
    "wrong_gets_nothing({c})",
    "silent_when_all_fail({c})",
    "live_when_unequal({x})",
    "passing_pays({x}, {c})",
    "within(1)",
    "within(2)",
    "min(advantage, where={c}) >= max(advantage, where=not {c})",
    "all(advantage >= 0 or {c})",
    "max(abs(advantage)) < 1.5 or std({x}) == 0",
    "{g}",
    "{g}",
    "{g}",
]


@dataclass
class Column:
    name: str
    values: list
    level: int
    missing: str
    outside: str
    component: bool = False
    symbols: bool = False
    binary: bool = False
    gated: bool = False
    ids: bool = False


@dataclass
class Draft:
    """A spec's text, and what was put into it. columns: that a batch has to have. lists: their names, by level."""

    text: str
    columns: list
    features: set = field(default_factory=set)
    uses_step: bool = False
    dialect: str | None = None
    inner: str = ""  # the advantage without the batch's normalisation, of small specs
    advantage: str = ""
    lists: dict = field(default_factory=dict)
    state: bool = False
    tame: bool = False  # few batches raise


class Author(Expressions):
    """small: few columns of few values, so that every group can be tried."""

    def __init__(self, seed, small=False):
        super().__init__(random.Random(seed), small)

    # Declarations --------------------------------------------------------------------------------

    def declare(self, name, component):
        """A column's declaration as YAML lines, and the column."""
        r = self.random
        level = ROLLOUT
        if not component and self.chance(0.35):
            level = self.pick([GROUP, BATCH])
            self.features.add("group column" if level == GROUP else "batch column")
        kinds = KINDS[:4] if self.small else KINDS
        domain, values = self.pick(kinds)
        if not component and not self.small and self.chance(0.06, "large ids"):
            domain, values = EPISODES
        if not component and self.chance(0.3, "symbols"):
            values = ["red", "blue"] if self.small else ["red", "blue", "green"]
            domain = f"values: [{', '.join(values)}]"
        symbols = isinstance(values[0], str)
        missing = "error"
        if self.chance(0.3):
            missing = self.pick(["ignore", "ignore", "zero"])
            if symbols:
                missing = "ignore"
            self.features.add(f"missing: {missing}")
        outside = "clip" if not symbols and self.chance(0.12, "outside: clip") else "error"
        column = Column(name, values, level, missing, outside, component, symbols, domain == BINARY[0])
        keys = [domain]
        if level < ROLLOUT:
            keys.append(f"level: {'group' if level == GROUP else 'batch'}")
        if missing != "error":
            keys.append(f"missing: {missing}")
        if outside != "error":
            keys.append("outside: clip")
        r.shuffle(keys)
        return keys, column

    def spec(self):
        """A Draft."""
        signals, components = [], []
        for name in self.random.sample(["x", "y", "z", "kind"], self.random.randint(0, 1 if self.small else 3)):
            keys, column = self.declare(name, False)
            self.columns.append(column)
            signals.append(f"  {name}: {{{', '.join(keys)}}}")
        names = ["a", "b", "c", "d"][: self.random.randint(1, 2 if self.small else 3)]
        drafted = []
        for name in names:
            keys, column = self.declare(name, True)
            self.columns.append(column)
            drafted.append((name, keys, column))
        self.set_leaves()
        if self.chance(0.3, "define"):
            self.define()
        for name, keys, column in drafted:
            keys = list(keys)
            if self.chance(0.2, "scale"):
                ends = column.values
                if ".inf" not in keys[0] + "".join(keys):
                    keys.append(self.scale())
                del ends
            self.gate(keys, name, must=False)
            self.weigh(keys)
            components.append(self.component(name, keys))
        if self.chance(0.55, "derived"):
            components.append(self.derived("e", names))
        if self.chance(0.2, "stages"):
            components.append(self.stages("s"))
        self.leaves[ROLLOUT] += [c.split(":")[0].strip() for c in components]
        self.bundles = True
        lines = ["rewardspec: 1"]
        lines += ["signals:", *signals] if signals else []
        lines += ["components:", *components]
        lines += ["define:", *self.defined] if self.functions else []
        if self.chance(0.25, "keep"):
            condition = self.condition(2, GROUP)
            lines.append(f'keep: "{condition}"')
            if not self.small and self.chance(0.4, "refill"):
                self.features.add("step")
                lines.append(f'refill: "{self.number(2, GROUP)}"')
                self.leaves[GROUP].append("copies")
        advantage = self.advantage()
        lines.append(f'advantage: "{advantage}"')
        if self.chance(0.2 if self.small else 0.4, "numerics"):
            lines.append(f"numerics: {{eps: {self.pick(['0.5', '1e-4', '0', '1/8', '1'])}, ddof: {self.pick('01')}}}")
        text = "\n".join(lines) + "\n"
        dialect = None
        if not self.small and self.chance(0.15, "dialect"):
            dialect = self.pick(["trl", "verl", "openrlhf", "nemo_rl"])
        if self.small:
            text += self.guarantees()
        inner = {"gdpo": "decoupled"}.get(advantage, advantage)
        return Draft(text, self.columns, self.features, True, dialect, inner, advantage)

    def guarantees(self):
        """Claims, ready made and at random, some of which hold."""
        self.leaves[ROLLOUT] += ["advantage", "advantage"]
        lines = ["guarantees:"]
        for at in range(4):
            own, right = self.rollout_leaf(), self.condition(0, ROLLOUT)
            lines.append(f'  claim {at}: "{self.pick(CLAIMS).format(c=right, x=own, g=self.condition(2, GROUP))}"')
        return "\n".join(lines) + "\n"

    def component(self, name, keys):
        return "\n".join([f"  {name}:", *(f"    {key}" for key in keys)])

    def set_leaves(self):
        """What expressions of each level can name."""
        self.leaves = {BATCH: ["2", "0.5", "1", "0.1"], GROUP: ["group_size"], ROLLOUT: []}
        if not self.small:
            self.leaves[BATCH] += ["progress", "progress", "batch_size"]
        self.leaves |= {level: [] for level in self.lists}
        for column in self.columns:
            if not column.symbols and not column.ids and column.values is not EPISODES[1]:
                self.leaves[column.level].append(f"raw({column.name})" if column.component else column.name)
        self.leaves[ROLLOUT] = self.leaves[ROLLOUT] or ["rank(1 + 0 * group_size)"]

    def define(self):
        """Values and functions of the spec's own."""
        self.defined = [
            '  level_of(p, q=0.5): "p - q * mean(p)"',
            f"  limit: {self.pick(['0.5', '1', '2'])}",
            '  between(p, low=0, high=limit): "low <= p < high"',
        ]
        self.functions = ["level_of"]
        self.leaves[BATCH].append("limit")

    def scale(self):
        """Two ends that differ: onto one value, a component is a constant, and its column is not looked at."""
        low = self.scale_end()
        return f"scale: [{low}, {next(end for end in iter(self.scale_end, None) if end != low)}]"

    def scale_end(self):
        options = ["0", "1", "-1", "2", "0.5"] + (
            [] if self.small else ["progress", "1 - progress", "2 * progress - 1"]
        )
        return self.pick(options)

    def gate(self, keys, name, must):
        """`when` and `otherwise`."""
        if must or self.chance(0.35, "gate"):
            keys.append(f'when: "{self.condition(2, ROLLOUT)}"')
            column = next((c for c in self.columns if c.name == name), None)
            if column is not None:
                column.gated = True
            other = self.pick(["ignore", "ignore", "0", "-1", "0.5", "expr"])
            self.features.add("otherwise")
            if other == "expr":
                other = f'"{self.number(1, ROLLOUT)}"'
            keys.append(f"otherwise: {other}")

    def weigh(self, keys):
        if self.chance(0.4, "weight"):
            weight = self.pick(["0.5", "2", "-1", "0.1", "expr"])
            if weight == "expr":
                weight = f'"{self.number(1, self.pick([BATCH, GROUP]))}"'
                self.features.add("weight expression")
            keys.append(f"weight: {weight}")

    def derived(self, name, names):
        value = self.number(2, ROLLOUT)
        if self.small and self.chance(0.3, "inexact"):
            value = self.pick(["sigmoid({})", "tanh({} / 2)", "exp(-abs({}))", "cos({})", "sqrt(abs({}))"]).format(
                value
            )
        keys = [f'expr: "{value}"']
        if self.chance(0.15, "derived scale"):
            keys += ["range: [0, 2]", self.scale()]
        self.gate(keys, name, must=False)
        self.weigh(keys)
        return self.component(name, keys)

    def stages(self, name):
        keys = ["stages:"]
        for at in range(self.random.randint(2, 3)):
            gate = f', when: "{self.condition(1, ROLLOUT)}"' if at or self.chance(0.3) else ""
            keys.append(f'  - {{add: "{self.number(1, ROLLOUT)}"{gate}}}')
        if self.chance(0.3, "squash"):
            keys.append("squash: sigmoid")
        return self.component(name, keys)

    def advantage(self):
        roll = self.random.random()
        if self.small:
            # the batch's normalisation is left out, where every group is tried
            if roll < 0.5:
                return self.pick(["grpo", "dr_grpo", "rloo", "decoupled", "gdpo"])
            return self.pick(["center({})", "zscore({})", "{} - mean(total)", "loo({})", "minmax({})", "{}"]).format(
                self.of_rollout(self.number(2, ROLLOUT))
            )
        if roll < 0.45:
            return self.pick(SCHEMES)
        if roll < 0.6:
            x = self.number(2, ROLLOUT)  # often missing somewhere, and then an error
            return f"{self.pick(SCHEMES)} {self.pick('+-*')} {f'coalesce({x}, 0)' if self.chance(0.7) else x}"
        wrap = self.pick(["center({})", "zscore({}, over=batch)", "loo({})", "{}", "whiten({})", "zscore({})"])
        return wrap.format(self.of_rollout(self.number(3, ROLLOUT)))
