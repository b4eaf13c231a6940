"""Random specs with lists, ids and state."""

from reference.author import SCHEMES, Author, Column, Draft
from reference.expressions import BATCH, GROUP, OF_EACH, REDUCTIONS, ROLLOUT

TURN, CRITERION = 3, 4
KINDS = ("lists", "ids", "state")
NAMES = ["red", "blue", "green", "p"]
IDS = [3, 17, 2**40 + 1, 2**40 + 2, "p", "q", ("e", 1)]
NORMALISED = ["decoupled", "gdpo", "sum(weights * center(rewards), over=components)"]
NORMALISED += ["sum(zscore(rewards, over=batch), over=components)", "max(loo(rewards), over=components)"]


class Wide(Author):
    """kinds: what of lists, ids and state the spec has."""

    def __init__(self, seed, kinds=KINDS):
        super().__init__(seed)
        self.kinds, self.tame, self.ordered = kinds, True, False
        self.lists, self.shaped = {}, []  # names of lists and components' levels

    def spec(self):
        """A Draft."""
        head = ["rewardspec: 1", *self.declare_lists()]
        signals = [
            self.signal(name, ROLLOUT) for name in self.random.sample(["x", "y", "kind"], self.pick([0, 1, 1, 2]))
        ]
        for level in self.lists:
            names = ["met", "points", "sort"] if level == TURN else ["fits", "worth"]
            signals += [self.signal(name, level) for name in self.random.sample(names, self.pick([1, 1, 2]))]
        signals += self.declare_ids()
        drafted = []
        for name in ["a", "b", "c"][: self.random.randint(1, 3)]:
            level = TURN if self.lists and self.chance(0.4, "component of a list") else ROLLOUT
            keys, column = self.declare_at(name, level)
            column.component = True
            drafted.append((name, keys))
        self.set_leaves()
        state = self.declare_state()
        if self.chance(0.2, "define"):
            self.define()
        components = [self.measured(name, keys) for name, keys in drafted]
        if self.chance(0.7, "derived"):
            components.append(self.derived("e", []))
        updates = self.updates(state)
        self.bundles = len({*self.shaped} - {ROLLOUT}) <= 1
        lines = [*head, *(["signals:", *signals] if signals else []), "components:", *components]
        lines += ["define:", *self.defined] if self.functions else []
        lines += updates
        if self.chance(0.2, "keep"):
            lines.append(f'keep: "{self.condition(2, GROUP)}"')
            if self.chance(0.4, "refill"):
                lines.append(f'refill: "coalesce({self.number(2, GROUP)}, 0)"')
                self.leaves[GROUP].append("copies")
        advantage = self.advantage()
        lines.append(f'advantage: "{advantage}"')
        if self.chance(0.4, "numerics"):
            lines.append(f"numerics: {{eps: {self.pick(['0.5', '1e-4', '0', '1/8'])}, ddof: {self.pick('01')}}}")
        dialect = self.pick(["trl", "verl", "openrlhf", "nemo_rl"]) if self.chance(0.1, "dialect") else None
        return Draft(
            "\n".join(lines) + "\n",
            self.columns,
            self.features,
            True,
            dialect,
            lists=dict(self.lists),
            state=bool(state),
            tame=True,
            advantage=advantage,
        )

    # Declarations --------------------------------------------------------------------------------

    def declare_lists(self):
        if "lists" not in self.kinds:
            return []
        self.lists[TURN] = "turn"
        self.ordered = self.chance(0.75, "ordered")
        lines = ["lists:", f"  turn: {{{'ordered: true' if self.ordered else ''}}}"]
        if self.chance(0.25, "two lists"):
            self.lists[CRITERION] = "criterion"
            lines.append("  criterion: {about: of a rubric}")
        return lines

    def declare_at(self, name, level):
        """A declaration of numbers, or of names, of this level."""
        if level == ROLLOUT and name not in "abc":
            keys, column = self.declare(name, False)
        else:
            keys, column = self.declare(name, True)
        if level > ROLLOUT:
            if name == "sort":
                column.values, column.symbols, column.binary = ["red", "blue", "green"], True, False
                column.missing, column.outside = ("error" if column.missing == "zero" else column.missing), "error"
                keys = ["values: [red, blue, green]", *(["missing: ignore"] if column.missing == "ignore" else [])]
            column.level = level
            keys.append(f"level: {self.lists[level]}")
        column.component = False
        self.columns.append(column)
        return keys, column

    def signal(self, name, level):
        keys, _ = self.declare_at(name, level)
        return f"  {name}: {{{', '.join(keys)}}}"

    def declare_ids(self):
        if "ids" not in self.kinds and "state" not in self.kinds:
            return []
        levels = {"prompt": GROUP, "episode": ROLLOUT, "other": ROLLOUT}
        levels |= {"place": TURN} if self.lists else {}
        lines = []
        for name, level in levels.items():
            if name == "prompt" or ("ids" in self.kinds and self.chance(0.7, "ids")):
                missing = "ignore" if self.chance(0.25, "missing id") else "error"
                domain, values = "id: true", [v for v in IDS if name != "prompt" or not isinstance(v, tuple)]
                if name == "prompt" and ("ids" not in self.kinds or self.chance(0.3)):
                    domain, values = f"values: [{', '.join(NAMES)}]", NAMES
                keys = [domain] + (["missing: ignore"] if missing == "ignore" else [])
                keys += [f"level: {'group' if level == GROUP else 'turn'}"] if level != ROLLOUT else []
                self.columns.append(Column(name, self.random.sample(values, 4), level, missing, "error"))
                self.columns[-1].ids = domain == "id: true"
                self.columns[-1].symbols = not self.columns[-1].ids and isinstance(values[0], str)
                lines.append(f"  {name}: {{{', '.join(keys)}}}")
        return lines

    def set_leaves(self):
        super().set_leaves()
        if self.lists and not any(c.level == ROLLOUT and not c.symbols and not c.ids for c in self.columns):
            self.leaves[ROLLOUT] = ["sum(position(turn), over=rollout)"]
        if self.lists:
            self.leaves[TURN] += ["position" if len(self.lists) == 1 else "position(turn)"]
        if CRITERION in self.lists:
            self.leaves[CRITERION] += ["position(criterion)"]

    def declare_state(self):
        """Names of state."""
        if "state" not in self.kinds:
            return []
        names = self.random.sample(["price", "level_held"], self.pick([1, 2, 2]))
        self.features |= {*names}
        self.leaves[BATCH] += ["price"] * 2 * ("price" in names)
        self.leaves[GROUP] += ["level_held"] * 2 * ("level_held" in names)
        return names

    def updates(self, names):
        lines = ["state:"] if names else []
        for name in names:
            level = BATCH if name == "price" else GROUP
            form, over = self.random.random(), ", over=batch" if level == BATCH else ""
            rate = self.pick(["0.5", "0.25", "0.1"])
            if form < 0.6:
                measured = f"mean({self.of(self.number(2, ROLLOUT), ROLLOUT)}{over})"
                update = f"(1 - {rate}) * {name} + {rate} * {measured}"
            else:
                update = (
                    self.number(3, level) if level == GROUP else f"max({self.of(self.leaf(ROLLOUT), ROLLOUT)}{over})"
                )
            lines += [f"  {name}:", f"    init: {self.pick(['0', '0.5', '1', '0.1'])}"]
            lines += [f"    range: {self.pick(['[0, 1]', '[-2, 2]', '[0, .inf]'])}", f'    update: "{update}"']
            if level == GROUP:
                lines.append("    by: prompt")
                lines += [f"    most: {self.pick('1234')}"] if self.chance(0.4, "most") else []
        return lines

    def measured(self, name, keys):
        column = next(c for c in self.columns if c.name == name)
        if ".inf" not in "".join(keys) and self.chance(0.15, "scale"):
            keys = [*keys, self.scale()]
        return self.shape(name, [*keys], column.level)

    def derived(self, name, names):
        level = self.pick([ROLLOUT, *self.lists]) if self.lists else ROLLOUT
        value = self.of(self.number(3, level), level)
        return self.shape(name, [f'expr: "{value}"'], level)

    def shape(self, name, keys, level):
        """Gate and weight; the level that the component then has."""
        gated = level
        if self.chance(0.35, "gate"):
            if level == ROLLOUT and self.lists and self.chance(0.2, "gate of items"):
                gated = TURN
            gate = self.condition(2, gated)
            if gated > level:
                gate = f"({self.leaf(TURN)} >= 1 or {gate})" if self.chance(0.5) else f"({gate}) and position(turn) < 3"
            keys.append(f'when: "{gate}"')
            column = next((c for c in self.columns if c.name == name), None)
            if column is not None:
                column.gated = True
            other = self.pick(["ignore", "ignore", "0", "-1", "0.5"])
            keys.append(f"otherwise: {other}")
        self.weigh(keys)
        self.shaped.append(gated)
        self.leaves[gated].append(name)
        return self.component(name, keys)

    def advantage(self):
        roll, levels = self.random.random(), {*self.shaped}
        fine = max(levels)
        of_lists = levels - {ROLLOUT}
        options = SCHEMES if len(levels) == 1 else NORMALISED
        if len(of_lists) <= 1 and roll < 0.4:
            return self.pick(options)
        if len(of_lists) <= 1 and roll < 0.55:
            return f"{self.pick(options)} {self.pick('+-*')} coalesce({self.number(2, fine)}, 0)"
        wrap = self.pick(
            ["center({})", "zscore({}, over=batch)", "loo({})", "coalesce({}, 0)", "whiten({})", "zscore({})"]
        )
        level = self.pick([ROLLOUT, *self.lists, *self.lists])
        return wrap.format(self.of(self.number(3, level), level))

    # Expressions ---------------------------------------------------------------------------------

    def levels(self, level):
        return [*range(min(level, ROLLOUT) + 1), *([level] if level > ROLLOUT else [])]

    def of(self, x, level):
        """Something of this level, for sure."""
        if x in self.leaves[level]:
            return x
        leaf = self.pick(self.leaves[level])
        return f"{leaf} + {x}" if self.chance(0.7) else f"{x} if {leaf} > 0 else {self.pick(['0', leaf])}"

    def of_rollout(self, x):
        return self.of(x, ROLLOUT)

    def number(self, depth, level):
        if level == TURN and self.ordered and depth > 0 and self.chance(0.25, "along"):
            x = self.of(self.number(depth - 1, TURN), TURN)
            name = self.pick(["before", "after", "so_far", "returns", "returns"])
            self.features.add(name)
            if name in ("before", "after"):
                return f"coalesce({name}({x}), {self.pick(['0', '1', '-1'])})" if self.chance(0.7) else f"{name}({x})"
            gamma = self.pick(["", ", gamma=0.5", ", gamma=0", ", gamma=0.9"]) if name == "returns" else ""
            return f"{name}({x}{gamma})"
        return super().number(depth, level)

    def over_components(self, depth):
        self.features.add("over=components")
        if len({*self.shaped}) == 1 and self.shaped[0] == ROLLOUT:
            return super().over_components(depth)
        return self.reduction(depth, ROLLOUT)

    def reduction(self, depth, level):
        fine = level if level > ROLLOUT else self.pick([ROLLOUT, *self.lists, *self.lists])
        if level == BATCH or fine == ROLLOUT:
            return super().reduction(depth, level)
        if level == fine and self.chance(0.45):
            name = self.pick(OF_EACH)
            self.features.add(f"{name} of items")
            return f"{name}({self.of(self.number(depth - 1, fine), fine)}{self.items_axis(depth, fine, level)})"
        name = self.pick(REDUCTIONS)
        self.features.add(f"{name} of items")
        if name in ("any", "all"):
            x = f"({self.pick(self.leaves[fine])} >= {self.pick(['0', '1'])} or {self.condition(depth - 1, fine)})"
        else:
            x = self.of(self.number(depth - 1, fine), fine)
        counted = [c.name for c in self.columns if (c.symbols or c.ids) and c.level == fine]
        if name == "count" and counted and self.chance(0.5):
            x = self.pick(counted)
        rest = {"quantile": f", {self.pick(['0.5', '0.3', '0', '1'])}", "kth": f", {self.pick('122')}"}.get(name, "")
        rest += self.items_axis(depth, fine, level)
        if name in ("std", "var") and self.chance(0.3):
            rest += f", ddof={self.pick('01')}"
        if name in ("mean", "min", "max", "quantile", "kth") and self.chance(0.7):
            return f"coalesce({name}({x}{rest}), {self.pick('01')})"
        return f"{name}({x}{rest})"

    def items_axis(self, depth, fine, level):
        """over, where and by for values of a list."""
        over = ", over=rollout" if level == ROLLOUT else self.pick(["", "", ", over=batch"])
        if level == fine:
            over = self.pick(["", ", over=rollout", ", over=batch"])
        self.features |= {over[2:]} if over else set()
        if self.chance(0.3, "where of items"):
            over += f", where={self.condition(depth - 1, fine)}"
        if level == fine and self.chance(0.4, "by of items"):
            places = [c.name for c in self.columns if not c.component and c.level in self.levels(fine)]
            over += f", by={self.pick([*places, self.leaves[fine][-1], f'position({self.lists[fine]})'])}"
        return over

    def condition(self, depth, level):
        ids = [c.name for c in self.columns if c.ids and c.level in self.levels(level)]
        if len(ids) > 1 and self.chance(0.15, "ids compared"):
            return f"{self.pick(ids)} {self.pick(['==', '!='])} {self.pick(ids)}"
        return super().condition(depth, level)
