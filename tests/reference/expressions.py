"""Random expressions over what a spec declares."""

BATCH, GROUP, ROLLOUT = 0, 1, 2
LITERALS = ["0", "1", "2", "0.5", "-1", "0.25", "3", "0.1", "1/2", "1e-1", "-0.5"]
FUNCTIONS = ["abs", "sign", "floor", "round", "sigmoid", "tanh", "cos", "exp", "sqrt", "log", "comb"]
REDUCTIONS = ["mean", "mean", "sum", "min", "max", "count", "std", "var", "quantile", "kth", "any", "all"]
OF_EACH = ["rank", "std_others", "center", "zscore", "loo", "minmax"]


class Expressions:
    """small: every group can be tried. tame: few expressions are undefined. leaves: of each level, what an expression
    can name.
    """

    def __init__(self, random, small):
        self.random, self.small = random, small
        self.features, self.columns, self.leaves, self.functions = set(), [], {}, []
        self.bundles = self.tame = False
        self.lists = {}

    def pick(self, options):
        return self.random.choice(options)

    def chance(self, p, feature=None):
        hit = self.random.random() < p
        if hit and feature:
            self.features.add(feature)
        return hit

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
                n = f"min(abs(floor({x})), 9)" if self.tame or self.chance(0.8) else f"abs(floor({x}))"
                return f"comb({n}, {self.pick(['0', '1', '2', '3', f'abs(round({self.leaf(level)}))'])})"
            if function in ("log", "sqrt") and (self.tame or self.chance(0.7)):
                x = f"abs({x}) + {self.pick(['1', '0.5'])}"
            return f"exp(min({x}, 2))" if function == "exp" else f"{function}({x})"
        if form < 0.45:
            self.features.add("power")
            if self.tame:
                return f"(abs({inner()}) + 0.5) ** {self.pick(['2', '0', '0.5', '-1'])}"
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
        levels = [n for n in self.levels(level) if self.leaves[n]]
        at = level if self.leaves[level] and self.chance(0.75) else self.pick(levels)
        return self.pick(self.leaves[at])

    def levels(self, level):
        """Those of what an expression of this level can name."""
        return range(level + 1)

    def quotient(self, depth, level):
        """A division, mostly by what cannot be 0 where it is asked for."""
        self.features.add("division")
        above, below = self.number(depth - 1, level), self.number(depth - 1, level)
        roll = self.random.random() * (0.85 if self.tame else 1)
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
        roll, levels = self.random.random(), self.levels(level)
        binary = [f"raw({c.name})" if c.component else c.name for c in self.columns if c.binary and c.level in levels]
        symbols = [c.name for c in self.columns if c.symbols and c.level in levels]
        if symbols and roll < 0.15:
            self.features.add("symbol comparison")
            return f"{self.pick(symbols)} {self.pick(['==', '!='])} {self.pick(['red', 'blue'])}"
        if binary and roll < 0.3 and level >= ROLLOUT:
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
