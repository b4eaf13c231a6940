"""What a spec declares: columns, lists, state, definitions. As LANGUAGE.md has them."""

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

from places import SPECS
from ruamel.yaml import YAML

from reference.nodes import ROLLOUT, Node, SpecError
from reference.parser import parse, parse_signature

NO_LIST = ("batch", "group", "rollout", "components")


@dataclass
class Column:
    """A column as it is declared. values: Fractions, or names of symbols. gate: the node of `when`, if there is one.
    ids: of values that are hashable, and no numbers.
    """

    name: str
    values: tuple | None
    range: tuple | None
    level: int = ROLLOUT
    missing: str = "error"
    outside: str = "error"
    symbols: bool = False
    measured: bool = False
    gate: Node | None = None
    ids: bool = False

    @property
    def ends(self):
        return self.range or (min(self.values), max(self.values))


@dataclass
class State:
    """A name of `state:`. by: the column of its keys, None where there is one value for the batch."""

    name: str
    init: Fraction
    range: tuple
    by: Column | None
    most: int
    update: Node | None = None


@dataclass
class Scope:
    """Where a name is looked up: parameters, and whether the text is the prelude's."""

    parameters: dict = field(default_factory=dict)
    closed: bool = False
    guarantee: bool = False


def read_yaml(text):
    """Mappings, lists and strings: no scalar is taken for a number."""
    return YAML(typ="base").load(text)


@cache
def shipped(name):
    return read_yaml((SPECS / f"{name}.yaml").read_text())


def literal(text):
    """A number of `values`, `range` or `numerics`: `-1/3`, `1e-4`, `.inf`."""
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text)
    return sign * (float("inf") if text == ".inf" else Fraction(text))


def is_literal(text):
    try:
        literal(text)
    except (ValueError, ZeroDivisionError):
        return False
    return True


def declare_column(name, declared, levels):
    """A Column. levels: numbers of levels by name."""
    values, ends, ids = declared.get("values"), declared.get("range"), declared.get("id") == "true"
    symbols = values is not None and not all(is_literal(v) for v in values)
    if values is not None:
        values = tuple(values) if symbols else tuple(literal(v) for v in values)
    level, missing = declared.get("level", "rollout"), declared.get("missing", "error")
    if level not in levels:
        raise SpecError(f"no level {level}")
    if ids and (values or ends or missing == "zero" or "outside" in declared):
        raise SpecError(f"{name} has ids, which are no numbers")
    return Column(
        name,
        values,
        None if ends is None else tuple(literal(end) for end in ends),
        levels[level],
        missing,
        declared.get("outside", "error"),
        symbols,
        ids=ids,
    )


def declare_lists(declared):
    """Name of a list: whether it is ordered."""
    for name in declared:
        if name in NO_LIST:
            raise SpecError(f"no name for a list: {name}")
    return {name: bool(keys) and keys.get("ordered") == "true" for name, keys in declared.items()}


def declare_state(name, declared, columns, group):
    """A State, without its update. group: the number of that level."""
    init, ends = literal(declared["init"]), tuple(map(literal, declared["range"]))
    if not ends[0] <= init <= ends[1]:
        raise SpecError(f"{name} begins outside its range")
    by, most = declared.get("by"), declared.get("most")
    keyed = by in columns and (columns[by].ids or columns[by].symbols) and columns[by].level == group
    if by is not None and not keyed:
        raise SpecError(f"the keys of {name} have to be ids or names of groups")
    if most is not None and (by is None or int(most) < 1):
        raise SpecError(f"{name}: `most` bounds keys")
    return State(name, init, ends, by and columns[by], 100_000 if most is None else int(most))


def definitions(declared):
    """(name, "value" or "function"): (parameters, body). Functions can be looked up by their bare name, too."""
    found = {}
    for left, right in declared.items():
        name, parameters = parse_signature(left)
        kind = "value" if parameters is None else "function"
        found[name, kind] = (parameters, parse(right))
        if kind == "function":
            found[name] = found[name, kind]
    return found
