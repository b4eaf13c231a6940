"""Random specs over everything the language has, and random batches for them."""

import random
from dataclasses import dataclass, field
from fractions import Fraction

BATCH, GROUP, ROLLOUT = 0, 1, 2
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
LITERALS = ["0", "1", "2", "0.5", "-1", "0.25", "3", "0.1", "1/2", "1e-1", "-0.5"]
FUNCTIONS = ["abs", "sign", "floor", "round", "sigmoid", "tanh", "cos", "exp", "sqrt", "log", "comb"]
REDUCTIONS = ["mean", "mean", "sum", "min", "max", "count", "std", "var", "quantile", "kth", "any", "all"]
OF_EACH = ["rank", "std_others", "center", "zscore", "loo", "minmax"]
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


@dataclass
class Draft:
    """A spec's text, and what was put into it. columns: that a batch has to have."""

    text: str
    columns: list
    features: set = field(default_factory=set)
    uses_step: bool = False
    dialect: str | None = None
    inner: str = ""  # the advantage without the batch's normalisation, of small specs
    advantage: str = ""


class Author:
    """small: few columns of few values, so that every group can be tried."""

    def __init__(self, seed, small=False):
        self.random, self.small = random.Random(seed), small
        self.features, self.columns, self.leaves, self.functions = set(), [], {}, []
        self.bundles = False

    def pick(self, options):
        return self.random.choice(options)

    def chance(self, p, feature=None):
        hit = self.random.random() < p
        if hit and feature:
            self.features.add(feature)
        return hit

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
        for column in self.columns:
            if not column.symbols and column.values is not EPISODES[1]:
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
            return f"{self.pick(SCHEMES)} {self.pick('+-*')} {self.number(2, ROLLOUT)}"
        wrap = self.pick(["center({})", "zscore({}, over=batch)", "loo({})", "{}", "whiten({})", "zscore({})"])
        return wrap.format(self.of_rollout(self.number(3, ROLLOUT)))

    # Expressions ---------------------------------------------------------------------------------

    def number(self, depth, level):
        """An expression of at most this level."""
        if depth <= 0 or self.chance(0.15):
            return self.leaf(level)
        inner = lambda: self.number(depth - 1, level)  # noqa: E731
        form = self.random.random()
        if form < 0.25:
            return f"({inner()} {self.pick('++--*')} {inner()})"
        if form < 0.31:
            return self.quotient(depth, level)
        if form < 0.40:
            function = self.pick(FUNCTIONS)
            self.features.add(function)
            x = inner()
            if function == "comb":
                return f"comb(abs(floor({x})), {self.pick(['0', '1', '2', '3', f'abs(round({self.leaf(level)}))'])})"
            if function in ("log", "sqrt") and self.chance(0.7):
                x = f"abs({x}) + {self.pick(['1', '0.5'])}"
            return f"exp(min({x}, 2))" if function == "exp" else f"{function}({x})"
        if form < 0.45:
            self.features.add("power")
            return f"({inner()}) ** {self.pick(['2', '0', '3', '0.5', '-1', inner()])}"
        if form < 0.54:
            self.features.add("if")
            return f"({inner()} if {self.condition(depth - 1, level)} else {inner()})"
        if form < 0.62:
            function = self.pick(["min", "max", "coalesce", "coalesce", "clip", "present", "negate", "holds"])
            self.features.add(function)
            if function == "clip":
                return f"clip({inner()}, {self.pick(['-1', '0'])}, {self.pick(['0.5', '1'])})"
            if function == "present":
                return f"present({self.leaf(level)})"
            if function == "negate":
                return f"(-{inner()})"
            if function == "holds":
                return f"({self.condition(depth - 1, level)})"
            return f"{function}({inner()}, {inner()})"
        if form < 0.66 and level == ROLLOUT and self.functions:
            return f"level_of({inner()}{self.pick(['', ', q=1', ', 2'])})"
        if form < 0.70 and self.bundles and level == ROLLOUT:
            return self.over_components(depth)
        return self.reduction(depth, level)

    def leaf(self, level):
        levels = [n for n in range(level + 1) if self.leaves[n]]
        at = level if self.leaves[level] and self.chance(0.75) else self.pick(levels)
        return self.pick(self.leaves[at])

    def quotient(self, depth, level):
        """A division, mostly by what cannot be 0 where it is asked for."""
        self.features.add("division")
        above, below = self.number(depth - 1, level), self.number(depth - 1, level)
        roll = self.random.random()
        if roll < 0.3:
            return f"({above} / (1 + abs({below})))"
        if roll < 0.7:
            return f"({above} / ({below}) if {below} != 0 else {self.pick(['0', '1', 'missing'])})"
        if roll < 0.85:
            return f"(({below}) != 0 and {above} / ({below}) > 0.5)"
        return f"({above} / ({below}))"

    def over_components(self, depth):
        self.features.add("over=components")
        function = self.pick(["sum", "max", "min", "mean", "count", "std"])
        bundle = self.pick(["rewards", "weights * rewards", "zscore(rewards)", "coalesce(rewards, 0)"])
        where = self.pick(["", "", ", where=rewards > 0", f", where={self.condition(depth - 2, ROLLOUT)}"])
        return f"{function}({bundle}, over=components{where})"

    def reduction(self, depth, level):
        """A reduction of at most this level."""
        if level == BATCH:
            return self.leaf(BATCH)
        if level == ROLLOUT and self.chance(0.45):
            name = self.pick(OF_EACH)
            self.features.add(name)
            x = self.number(depth - 1, ROLLOUT)
            return f"{name}({self.of_rollout(x)}{self.axis(depth, name)})"
        name = self.pick(REDUCTIONS)
        self.features.add(name)
        by = level == ROLLOUT
        if name in ("any", "all"):
            x = self.condition(depth - 1, ROLLOUT)
            x = x if self.mentions_rollout(x) else f"({self.rollout_leaf()} >= {self.pick(['0', '1'])} and {x})"
        else:
            x = self.of_rollout(self.number(depth - 1, ROLLOUT))
        if name == "count" and self.chance(0.4):
            symbols = [c.name for c in self.columns if c.symbols and c.level == ROLLOUT]
            x = self.pick(symbols) if symbols else x
        rest = f", {self.pick(['0.5', '0.3', '0', '1', '0.9'])}" if name == "quantile" else ""
        if name == "kth":
            rest = f", {self.pick('1223')}"
        rest += self.axis(depth, name, by)
        if name in ("std", "var") and self.chance(0.3):
            rest += f", ddof={self.pick('01')}"
        if name == "kth" and (self.small or self.chance(0.95)):
            return f"coalesce(kth({x}{rest}), 0)"
        return f"{name}({x}{rest})"

    def rollout_leaf(self):
        return self.pick(self.leaves[ROLLOUT])

    def mentions_rollout(self, text):
        return any(leaf in text for leaf in self.leaves[ROLLOUT])

    def of_rollout(self, x):
        """Something of rollout level."""
        return f"{self.rollout_leaf()} + {x}" if self.chance(0.4) or not self.mentions_rollout(x) else x

    def axis(self, depth, name, by=True):
        rest = ""
        if not self.small and self.chance(0.25, "over=batch"):
            rest += ", over=batch"
        if self.chance(0.3, "where"):
            rest += f", where={self.condition(depth - 1, ROLLOUT)}"
        if by and self.chance(0.2, "by"):
            rest += f", by={self.pick([c.name for c in self.columns if not c.component] or self.leaves[ROLLOUT])}"
        return rest

    def condition(self, depth, level):
        roll = self.random.random()
        binary = [f"raw({c.name})" if c.component else c.name for c in self.columns if c.binary and c.level <= level]
        symbols = [c.name for c in self.columns if c.symbols and c.level <= level]
        if symbols and roll < 0.15:
            self.features.add("symbol comparison")
            return f"{self.pick(symbols)} {self.pick(['==', '!='])} {self.pick(['red', 'blue'])}"
        if binary and roll < 0.3 and level == ROLLOUT:
            return self.pick(binary)
        if depth <= 0 or roll < 0.7:
            left, right = self.number(depth - 1, level), self.pick([*LITERALS[:8], self.leaf(level)])
            return f"{left} {self.pick(['<', '<=', '>', '>=', '==', '!='])} {right}".replace("1/2", "0.5")
        inner = lambda: self.condition(depth - 1, level)  # noqa: E731
        if roll < 0.78:
            self.features.add("chain")
            return f"({self.pick(['-1', '0'])} <= {self.leaf(level)} < {self.pick(['1', '2', self.leaf(level)])})"
        if roll < 0.95:
            self.features.add("and or")
            return f"({inner()} {self.pick(['and', 'or'])} {inner()})"
        self.features.add("not")
        return f"(not {inner()})"


# Batches -----------------------------------------------------------------------------------------


@dataclass
class Data:
    """columns: Fractions, symbols or None, N each. types: of each column: list, float32 or float64."""

    columns: dict
    groups: list
    types: dict
    step: int | None
    total_steps: int | None


def batch(draft, rng):
    """A random batch for a spec: ragged, interleaved or in order."""
    sizes = [rng.choice([1, 2, 2, 3, 4]) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.4:
        sizes = [rng.randint(1, 5)] * rng.randint(1, 3)
    groups = [g for g, size in enumerate(sizes) for _ in range(size)]
    if rng.random() < 0.5:
        rng.shuffle(groups)
    kind = rng.choice(["list", "float32", "float64", "mixed", "mixed"])
    columns, types = {}, {}
    for column in draft.columns:
        values = []
        pool = rng.sample(column.values, min(len(column.values), rng.choice([1, 2, 2, 9])))  # some groups are alike
        for _ in groups:
            value = rng.choice(pool)
            if rng.random() < (0.2 if column.missing != "error" or column.gated else 0.004):
                value = None
            elif not column.symbols and rng.random() < (0.2 if column.outside == "clip" else 0.004):
                value = value + rng.choice([-5, Fraction(1, 4), 5])
            values.append(value)
        if column.level == GROUP:
            values = [values[groups.index(g)] for g in groups]
        if column.level == BATCH:
            values = [values[0]] * len(values)
        columns[column.name] = values
        types[column.name] = rng.choice(["list", "float32", "float64"]) if kind == "mixed" else kind
        if all(isinstance(v, Fraction) and v.denominator == 1 for v in values) and rng.random() < 0.3:
            types[column.name] = "int64"
    if draft.dialect is not None and "tokens" not in columns:
        columns["tokens"] = [Fraction(rng.choice([1, 2, 4, 8])) for _ in groups]
        types["tokens"] = "float32"
    return Data(columns, groups, types, rng.randint(0, 4), 4)
