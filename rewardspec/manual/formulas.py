"""Pages of the prelude's schemes and definitions, and of the dialects, from their files in `specs/`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import takewhile

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.node import walk
from rewardspec.language.catalogue import comment_of, schemes
from rewardspec.language.declarations import Definition
from rewardspec.language.prelude import dialects, prelude
from rewardspec.language.published import name_of_published, published_files
from rewardspec.manual.page import Kind, Page, fenced, paragraphs, sentence, table
from rewardspec.ops.functions import FUNCTIONS
from rewardspec.resources import resource
from rewardspec.spec import loads

# The group on the pages: four rollouts.
CORRECT, SHORT = (1, 0, 0, 0), (0, 1, 1, 0)
_GROUP = "rewardspec: 1\ncomponents:\n  correct: {values: [0, 1]}\n  short: {values: [0, 1], weight: 1/2}\n"
# How definitions with more arguments are shown.
_CALLS = {
    "ramp": "ramp(x, start=2, end=6)",
    "overlong": "overlong(x, 6, 4)",
    "rescale": "rescale(x, 0, 10, -1, 1)",
}
_VALUES = (1, 3, 5, 7)
_COLUMN = "rewardspec: 1\ncomponents:\n  x: {range: [0, 10]}\n"


def _scheme(name: str) -> Page:
    found = prelude().values[name]
    values = _exact(f"{_GROUP}advantage: {name}\nnumerics: {{eps: 0}}\n", {"correct": CORRECT, "short": SHORT})
    numbers = table(
        ("rollout", "`correct`", "`short`, weight 0.5", f"`{name}`"),
        [(str(i + 1), str(CORRECT[i]), str(SHORT[i]), value) for i, value in enumerate(values)],
    )
    given = f"advantage: {name}" if name != "total" else "advantage: total - mean(total)"
    body = paragraphs(
        sentence(comment_of(found)),
        fenced(f"{given}\n\n# which is, in the prelude\ndefine:\n{_indented(_text(found))}"),
        "A group of four rollouts, which is the whole batch, with `eps` 0:",
        numbers,
        _in_dialects(name),
    )
    uses = [("spec", spec) for spec in _specs_of(name)]
    return Page("scheme", name, body, (*_named_in(found), *uses))


def _definition(name: str) -> Page:
    found = prelude().functions.get(name) or prelude().values[name]
    guarantee = comment_of(found).startswith("Guarantee")
    call = _CALLS.get(name) or (f"{name}(x)" if "over" in _parameters(found) or name == "whiten" else None)
    numbers = None
    if call is not None:
        values = _exact(f"{_COLUMN}advantage: {call}\nnumerics: {{eps: 0}}\n", {"x": _VALUES})
        rows = [(str(i + 1), str(x), values[i]) for i, x in enumerate(_VALUES)]
        numbers = table(("rollout", "`x`", f"`{call}`"), rows)
    body = paragraphs(
        sentence(comment_of(found)),
        fenced(f"define:\n{_indented(_text(found))}"),
        "Write it under `guarantees:`; `rewardspec verify` proves it, or shows the smallest group that breaks it."
        if guarantee
        else None,
        numbers and "A group of four rollouts, which is the whole batch, with `eps` 0:",
        numbers,
        _in_dialects(name),
    )
    return Page("definition", name, body, _named_in(found))


def _dialect(name: str) -> Page:
    path = resource(f"specs/dialects/{name}.yaml")
    own = prelude(name)
    body = paragraphs(
        " ".join((own.about or "").split()),
        own.origin and f"Source: {own.origin}",
        f'`rewardspec compile SPEC --dialect {name}`, or `spec.under("{name}")`, replaces the numerics of a spec and '
        "these definitions of the prelude.",
        fenced(path.read_text(encoding="utf-8")),
    )
    changed = [one for one in _shipped() if _differs(name, one)]
    return Page("dialect", name, body, tuple((_kind_of(one), one) for one in changed))


def _parameters(definition: Definition) -> list[str]:
    return [name for name, _ in definition.signature.parameters or ()]


def _text(definition: Definition) -> str:
    """A definition as the prelude writes it."""
    text = definition.signature.span.source.text
    start = definition.signature.span.start
    lines = text[start:].split("\n")
    own = takewhile(lambda line: line.startswith("    "), lines[1:])
    return "\n".join([lines[0], *(line.removeprefix("  ") for line in own)])


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _exact(text: str, columns: dict[str, Sequence[int]]) -> list[str]:
    """The advantages of a spec on one group, to four digits, by exact arithmetic."""
    root = loads(text).program.advantage
    start = [node for node in walk([root]) if node.op == "column"]
    rows = list(zip(*(map(Fraction, columns[node.attributes[0]]) for node in start), strict=True))
    found = GroupEvaluator(root, start, {})(rows, {})
    return [f"{float(value):.4f}".rstrip("0").rstrip(".") for value in found]


def _in_dialects(name: str) -> str | None:
    own = [f"# {one}\n{_text(_own(one, name))}" for one in dialects() if _differs(one, name)]
    return f"Under a dialect it is another one:\n\n{fenced(chr(10).join(own))}" if own else None


def _own(dialect: str, name: str) -> Definition:
    own = prelude(dialect)
    return own.values[name] if name in own.values else own.functions[name]


def _differs(dialect: str, name: str) -> bool:
    return name in _shipped() and _own(dialect, name).signature.span.source.name != "prelude.yaml"


def _shipped() -> list[str]:
    return [*prelude().values, *prelude().functions]


def _kind_of(name: str) -> str:
    return "scheme" if name in _schemes() else "definition"


def _named_in(definition: Definition) -> tuple[tuple[str, str], ...]:
    """The pages of the names in a definition, in order."""
    words = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", _text(definition)))
    found = [("function", word) for word in words if word in FUNCTIONS]
    found += [(_kind_of(word), word) for word in words if word in _shipped() and word != definition.name]
    return tuple(found)


def _specs_of(scheme: str) -> list[str]:
    """The published specs whose advantage is this scheme."""
    wanted = re.compile(rf"^advantage: {scheme}\s*(#.*)?$", re.M)
    return [name_of_published(p) for p in published_files() if wanted.search(p.read_text(encoding="utf-8"))]


def _schemes() -> list[str]:
    return [scheme.name for scheme in schemes()]


def _definitions() -> list[str]:
    return [name for name in _shipped() if name not in _schemes()]


SCHEMES = Kind("scheme", "ways from rewards to advantages, as `advantage:` names them", _schemes, _scheme)
DEFINITIONS = Kind("definition", "functions of the prelude, written in the language", _definitions, _definition)
DIALECTS = Kind("dialect", "the schemes as a trainer computes them", lambda: [*dialects()], _dialect)
