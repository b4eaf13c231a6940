"""A spec read into nodes: names looked up, definitions put in place, levels known. From grammar/LANGUAGE.md."""

from fractions import Fraction

from reference.declared import (
    Scope,
    declare_column,
    declare_lists,
    declare_state,
    definitions,
    literal,
    read_yaml,
    shipped,
)
from reference.nodes import (
    BATCH,
    GROUP,
    LEVELS,
    OF_EACH,
    ROLLOUT,
    Axis,
    Bundle,
    Node,
    SpecError,
    constant_of,
    finest,
    normalised,
    walk,
)
from reference.parser import parse

AXES = ("group", "batch", "rollout", "components")
ONE_NUMBER = ("abs", "sign", "sqrt", "exp", "log", "sigmoid", "tanh", "cos", "floor", "round")
REDUCTIONS = ["mean", "min", "max", "sum", "count", "std", "var", "any", "all", "quantile", "kth", "rank"]
REDUCTIONS += ["std_others"]
ADD_UP = ("sum", "mean", "std", "var")  # of components: none may count more for the items it is spread onto
ALONG = ("before", "after", "so_far", "returns")  # of the items of an ordered list
GIVEN = {"step": BATCH, "total_steps": BATCH, "progress": BATCH, "batch_size": BATCH, "eps": BATCH, "pi": BATCH}
GIVEN |= {"group_size": GROUP, "copies": GROUP}


class Reader:
    """A spec as nodes. eps: read in place of what is declared."""

    def __init__(self, text, dialect=None, eps=None):
        self.table, self.busy, self.values = {}, set(), {}
        self.spec = read_yaml(text)
        numerics = self.spec.get("numerics", {})
        self.prelude = definitions(shipped("prelude")["define"])
        self.columns, self.closed_columns = {}, {}
        self.lists = declare_lists(self.spec.get("lists", {}))
        self.levels = LEVELS | {name: ROLLOUT + 1 + at for at, name in enumerate(self.lists)}
        if dialect is not None:
            own = shipped(f"dialects/{dialect}")
            self.prelude |= definitions(own["define"])
            numerics = own["numerics"]
            for name, declared in own.get("signals", {}).items():
                self.closed_columns[name] = declare_column(name, declared, LEVELS)
        self.ddof = int(numerics.get("ddof", 1))
        self.eps = literal(numerics.get("eps", "1e-6")) if eps is None else eps
        self.define = definitions(self.spec.get("define", {}))
        self.components = {
            name: c if isinstance(c, dict) else {"expr": c} for name, c in self.spec["components"].items()
        }
        for name, declared in self.spec.get("signals", {}).items():
            self.columns[name] = declare_column(name, declared, self.levels)
        for name, declared in self.components.items():
            if "values" in declared or ("range" in declared and not ("expr" in declared or "stages" in declared)):
                self.columns[name] = declare_column(name, declared, self.levels)
                self.columns[name].measured = True
        for name, column in self.closed_columns.items():
            self.columns.setdefault(name, column)
        self.states = {
            name: declare_state(name, declared, self.columns, GROUP)
            for name, declared in self.spec.get("state", {}).items()
        }
        self.read_all()

    def read_all(self):
        mine = Scope()
        self.shaped = {name: self.component(name) for name in self.components}
        for name, declared in self.components.items():
            if name in self.columns and "when" in declared:
                self.columns[name].gate = self.expression(declared["when"], mine)
        self.weights = {
            name: self.coarse(self.expression(c.get("weight", "1"), mine)) for name, c in self.components.items()
        }
        self.keep = self.coarse(self.expression(self.spec["keep"], mine)) if "keep" in self.spec else None
        self.refill = self.coarse(self.expression(self.spec["refill"], mine)) if "refill" in self.spec else None
        self.advantage = self.number(self.expression(self.spec["advantage"], mine))
        if self.advantage.level < ROLLOUT:
            raise SpecError("the advantage has to be one value for each rollout, or item")
        self.measured = self.measured_at(self.advantage.level)  # 0 where nothing was measured
        self.advantage = self.node("spread", (self.advantage,), "advantage", self.advantage.level)
        for name, state in self.states.items():
            state.update = self.number(self.expression(self.spec["state"][name]["update"], mine))
            if state.update.level > (BATCH if state.by is None else GROUP):
                raise SpecError(f"the update of {name} is finer than {name}")
        self.outcome = self.number(self.expression(self.spec["outcome"], mine)) if "outcome" in self.spec else None
        if self.outcome is not None and self.outcome.level != ROLLOUT:
            raise SpecError("the outcome has to be one answer for each rollout")
        guarded = Scope(guarantee=True)
        self.guarantees = {name: self.expression(g, guarded) for name, g in self.spec.get("guarantees", {}).items()}
        results = [*self.shaped.values(), *self.weights.values(), self.keep, self.refill, self.advantage]
        read = {n.attribute for n in walk([*results, *(s.update for s in self.states.values())]) if n.op == "column"}
        read |= {s.by.name for s in self.states.values() if s.by is not None}
        self.read_columns = {n for n in self.columns if n in read or self.columns[n].measured}
        claimed = {n.attribute for n in walk(self.guarantees.values()) if n.op == "column"}
        self.claimed_columns = self.read_columns | claimed

    def coarse(self, node):
        if self.number(node).level >= ROLLOUT:
            raise SpecError("of group or batch level, this has to be")
        return node

    def is_id(self, node):
        return isinstance(node, Node) and node.op == "column" and self.columns[node.attribute].ids

    def number(self, node):
        """One value, which is no id."""
        if not isinstance(node, Node) or self.is_id(node):
            raise SpecError("one number has to be here")
        return node

    def measured_at(self, level):
        """Whether anything was measured for a rollout or an item: a list is missing where all of its items are."""
        if all(c.level == ROLLOUT for c in self.shaped.values()):
            return self.value("measured", Scope(closed=True))
        found = []
        for value in self.shaped.values():
            there = self.apply("present", [value])
            if value.level not in (ROLLOUT, level):
                none = self.apply("==", [self.reduce("count", there, None, None, "rollout", None), self.constant(0)])
                there = self.apply("or", [none, self.reduce("any", there, None, None, "rollout", None)])
            found.append(there)
        return self.node("components", tuple(found), ("any", len(found), None), level)

    # Components ----------------------------------------------------------------------------------

    def component(self, name):
        """Its value: scaled, gated, with `otherwise`."""
        if name in self.values:
            return self.values[name]
        if name in self.busy:
            raise SpecError(f"{name} depends on itself")
        self.busy.add(name)
        declared, mine = self.components[name], Scope()
        if "stages" in declared:
            value = self.staged(declared, mine)
        elif name in self.columns and "expr" not in declared:
            value = self.node("column", (), name, self.columns[name].level)
        else:
            value = self.expression(declared["expr"], mine)
        if "scale" in declared:
            if name in self.columns:
                ends = [self.constant(end) for end in self.columns[name].ends]
            else:
                ends = [self.constant(literal(end)) for end in declared["range"]]
            low, high = (self.expression(end, mine) for end in declared["scale"])
            value = self.invoke(self.prelude["rescale"], [value, *ends, low, high], {}, Scope(closed=True))
        if "when" in declared:
            text = declared.get("otherwise", "0")
            otherwise = self.node("missing") if text == "ignore" else self.expression(text, mine)
            value = self.apply("if", [self.expression(declared["when"], mine), value, otherwise])
        value = self.number(value)
        # a component has one value for each rollout, or for each item of a list
        value = self.node("spread", (value,), None, ROLLOUT) if value.level < ROLLOUT else value
        self.busy.remove(name)
        self.values[name] = value
        return value

    def staged(self, declared, scope):
        """The sum of stages: each counts while its own condition and all before it hold."""
        terms, gates = [], []
        for at, stage in enumerate(declared["stages"]):
            stage = stage if isinstance(stage, dict) else {"add": stage}
            if "when" in stage:
                gates = [*gates, self.expression(stage["when"], scope)]
            value = self.expression(stage["add"], scope)
            if at and declared.get("squash") == "sigmoid":
                value = self.apply("sigmoid", [value])
            for gate in reversed(gates):
                value = self.apply("if", [gate, value, self.constant(Fraction(0))])
            terms.append(value)
        result = terms[0]
        for term in terms[1:]:
            result = self.apply("+", [result, term])
        return result

    # Expressions ---------------------------------------------------------------------------------

    def expression(self, text, scope):
        return self.lower(parse(text), scope)

    def lower(self, tree, scope):
        if isinstance(tree, str):
            return self.name(tree, scope)
        if not isinstance(tree, tuple):
            return self.constant(tree)
        if tree[0] == "call":
            return self.call(tree, scope)
        if tree[0] in ("==", "!="):
            symbols = self.symbols(tree, scope)
            if symbols is not None:
                return self.apply(tree[0], symbols)
        return self.apply(tree[0], [self.lower(part, scope) for part in tree[1:]])

    def symbols(self, tree, scope):
        """The operands of a comparison of a column of names with one of its names."""
        for at in (1, 2):
            mine, other = tree[at], tree[3 - at]
            if isinstance(mine, str) and isinstance(other, str) and mine in self.columns and not scope.closed:
                column = self.columns[mine]
                if (
                    column.symbols
                    and mine not in scope.parameters
                    and mine not in self.define
                    and other in column.values
                ):
                    return [self.lower(mine, scope), self.node("symbol", (), other)]
        return None

    def name(self, name, scope):
        if name in scope.parameters:
            return scope.parameters[name]
        if name in AXES and name != "rollout":
            return Axis(name)
        if not scope.closed:
            if (name, "value") in self.define:
                return self.value(name, scope)
            if name in self.components:
                return self.component(name)
            if name in self.columns and name not in self.closed_columns:
                return self.node("column", (), name, self.columns[name].level)
        if (name, "value") in self.prelude:
            return self.value(name, Scope(closed=True))
        if scope.closed and name in self.closed_columns:
            return self.node("column", (), name, ROLLOUT)
        if name == "rewards":
            return Bundle(tuple(self.component(n) for n in self.components))
        if name == "weights":
            return Bundle(tuple(self.lower(parse(c.get("weight", "1")), Scope()) for c in self.components.values()))
        if name in self.states and not scope.closed:
            return self.node("state", (), name, BATCH if self.states[name].by is None else GROUP)
        if name == "missing":
            return self.node("missing")
        if name == "position" and self.lists:
            if len(self.lists) > 1:
                raise SpecError("position of which list?")
            return self.node("position", (), ROLLOUT + 1, ROLLOUT + 1)
        if name == "advantage" and scope.guarantee:
            return self.advantage
        if name == "outcome" and scope.guarantee and self.outcome is not None:
            return self.outcome
        if name == "rollout":  # a value of the spec's own hides it
            return Axis(name)
        if name in GIVEN:
            return self.node("given", (), name, GIVEN[name])
        raise SpecError(f"unknown name {name}")

    def value(self, name, scope):
        """A value of `define:` or the prelude."""
        place = (scope.closed, name, scope.guarantee)
        if place in self.busy:
            raise SpecError(f"{name} depends on itself")
        if place not in self.values:
            self.busy.add(place)
            _, body = (self.prelude if scope.closed else self.define)[name, "value"]
            self.values[place] = self.lower(body, Scope(closed=scope.closed, guarantee=scope.guarantee))
            self.busy.remove(place)
        return self.values[place]

    def call(self, tree, scope):
        _, function, arguments, keywords = tree
        keywords = dict(keywords)
        if function in REDUCTIONS and not (function in ("min", "max") and len(arguments) > 1):
            return self.reduction(function, [self.lower(a, scope) for a in arguments], keywords, scope)
        if function == "raw":
            return self.raw(arguments[0])
        if function == "position":
            if len(arguments) != 1 or arguments[0] not in self.lists:
                raise SpecError("position() takes the name of a list")
            level = self.levels[arguments[0]]
            return self.node("position", (), level, level)
        if function in ALONG:
            gamma = ("gamma",) if function == "returns" else ()
            if not keywords.keys() <= {*gamma} or not 1 <= len(arguments) <= 1 + len(gamma) - len(keywords):
                raise SpecError(f"{function} takes a value{' and gamma' * len(gamma)}")
            return self.along(function, *(self.lower(a, scope) for a in [*arguments, *keywords.values()]))
        if function in ONE_NUMBER or function in ("min", "max", "comb", "present", "coalesce", "required"):
            return self.apply(function, [self.lower(a, scope) for a in arguments])
        if function == "clip":
            x, low, high = (self.lower(a, scope) for a in arguments)
            return self.apply("min", [self.apply("max", [x, low]), high])
        named = {name: self.lower(value, scope) for name, value in keywords.items()}
        arguments = [self.lower(a, scope) for a in arguments]
        if not scope.closed and (function, "function") in self.define:
            return self.invoke(self.define[function, "function"], arguments, named, scope)
        if (function, "function") in self.prelude:
            closed = Scope(closed=True, guarantee=scope.guarantee)
            return self.invoke(self.prelude[function, "function"], arguments, named, closed)
        raise SpecError(f"unknown function {function}")

    def raw(self, name):
        if name == "rewards":
            return Bundle(tuple(self.node("column", (), n, self.columns[n].level) for n in self.components))
        if name not in self.columns:
            raise SpecError(f"raw({name})")
        return self.node("column", (), name, self.columns[name].level)

    def invoke(self, definition, arguments, named, scope):
        parameters, body = definition
        given = dict(zip((name for name, _ in parameters), arguments, strict=False)) | named
        for name, default in parameters:
            if name not in given:
                given[name] = self.lower(default, Scope(closed=scope.closed, guarantee=scope.guarantee))
        return self.lower(body, Scope({name: given[name] for name, _ in parameters}, scope.closed, scope.guarantee))

    # Nodes ---------------------------------------------------------------------------------------

    def node(self, op, args=(), attribute=None, level=BATCH):
        """One node for what is written alike."""
        place = (op, tuple(id(a) for a in args), attribute)
        if place not in self.table:
            self.table[place] = Node(op, tuple(args), attribute, level)
        return self.table[place]

    def constant(self, value):
        return self.node("const", (), value)

    def apply(self, op, args):
        """An operation on values, or on each of a bundle's."""
        if any(isinstance(a, Axis) for a in args):
            raise SpecError("an axis is no value")
        size = {len(a.nodes) for a in args if isinstance(a, Bundle)}
        if size:
            (size,) = size
            columns = [a.nodes if isinstance(a, Bundle) else (a,) * size for a in args]
            return Bundle(tuple(self.apply(op, list(one)) for one in zip(*columns, strict=True)))
        if {self.is_id(a) for a in args} not in ({False}, {op in ("==", "!=", "present")}):
            raise SpecError("ids are compared with ids, and counted")
        return self.node(op, args, None, finest(a.level for a in args))

    def along(self, op, x, gamma=None):
        """A function of the items before or after."""
        if isinstance(x, Bundle):
            return Bundle(tuple(self.along(op, one, gamma) for one in x.nodes))
        lists = list(self.lists)
        if self.number(x).level <= ROLLOUT or not self.lists[lists[x.level - ROLLOUT - 1]]:
            raise SpecError(f"{op} is for values of an ordered list")
        if op == "returns":
            gamma = Fraction(1) if gamma is None else constant_of(gamma)
            if not 0 <= gamma <= 1:
                raise SpecError("gamma is from 0 to 1")
        return self.node(op, (x,), gamma, x.level)

    def reduction(self, name, args, keywords, scope):
        x, *rest = args
        over = self.lower(keywords["over"], scope) if "over" in keywords else Axis("group")
        where = self.lower(keywords["where"], scope) if "where" in keywords else None
        by = self.lower(keywords["by"], scope) if "by" in keywords else None
        if not isinstance(over, Axis):
            raise SpecError("over= takes an axis")
        ddof = self.lower(keywords["ddof"], scope).attribute if "ddof" in keywords else Fraction(self.ddof)
        setting = rest[0].attribute if rest else int(ddof) if name in ("std", "var", "std_others") else None
        by = None if by is not None and by.op == "const" else by
        where = None if isinstance(where, Node) and where.op == "const" and where.attribute == 1 else where
        if over.name == "components":
            return self.over_components(name, x, where, setting)
        if isinstance(x, Bundle) or isinstance(where, Bundle):
            size = len((x if isinstance(x, Bundle) else where).nodes)
            xs = x.nodes if isinstance(x, Bundle) else (x,) * size
            wheres = where.nodes if isinstance(where, Bundle) else (where,) * size
            return Bundle(
                tuple(self.reduce(name, *one, by, over.name, setting) for one in zip(xs, wheres, strict=True))
            )
        return self.reduce(name, x, where, by, over.name, setting)

    def over_components(self, name, x, where, setting):
        if not isinstance(x, Bundle) or name in ("quantile", "kth", *OF_EACH):
            raise SpecError(f"{name}: no bundle to reduce over components")
        wheres = where.nodes if isinstance(where, Bundle) else () if where is None else (where,) * len(x.nodes)
        args = (*x.nodes, *wheres)
        level = finest(a.level for a in args)
        if level > ROLLOUT and name in ADD_UP:
            terms = [(v, max(v.level, *(w.level for w in wheres[at : at + 1]), 0)) for at, v in enumerate(x.nodes)]
            if any(of == ROLLOUT for _, of in terms) and not all(normalised(v) for v, of in terms if of >= ROLLOUT):
                raise SpecError(f"{name}: rewards of unlike level are normalised first")
        return self.node("components", args, (name, len(x.nodes), setting), level)

    def reduce(self, name, x, where, by, over, setting):
        if x.level < {"group": ROLLOUT, "batch": GROUP, "rollout": ROLLOUT + 1}[over]:
            raise SpecError(f"{name}: the values have no {over} to reduce")
        if self.is_id(where) or (self.is_id(x) and name != "count"):
            raise SpecError("ids are counted, and nothing else")
        if name in OF_EACH and x.level < ROLLOUT:
            x = self.node("spread", (x,), None, ROLLOUT)  # rollouts are ranked, still
        if any(part is not None and finest([part.level, x.level]) > x.level for part in (where, by)):
            raise SpecError(f"{name}: `where` or `by` is finer than its values")
        level = x.level if name in OF_EACH or by is not None else LEVELS[over]
        parts = (where is not None, by is not None)
        args = tuple(a for a in (x, where, by) if a is not None)
        return self.node("reduce", args, (name, over, setting, *parts), level)
