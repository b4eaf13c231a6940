"""YAML to blocks, checked against the tables of keys in `keys.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rewardspec.language.declarations import NO_LISTS
from rewardspec.language.keys import (
    COMPONENT,
    SIGNAL,
    SPEC,
    STAGE,
    VERSION,
    Choice,
    Free,
    Kind,
    Named,
    One,
    Pair,
    Part,
    Parts,
    Reason,
    Several,
)
from rewardspec.language.place import Place
from rewardspec.syntax.expression import KEYWORDS, NAME
from rewardspec.syntax.foreign import KEYS, PART_KEYS, WORDS, help_for
from rewardspec.syntax.yaml import Mapping, Node, Scalar, Sequence, read_yaml
from rewardspec.text.diagnostics import Report, shorten
from rewardspec.text.source import Source, Span

NOT_TEXT = re.compile(r"[-+]?(\.?[0-9][0-9_.]*(e[-+]?[0-9]+)?|0x[0-9a-f_]+|0o[0-7_]+|\.inf|\.nan)", re.IGNORECASE)
NOT_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


@dataclass(frozen=True, eq=False)
class Block:
    """A mapping of a spec file. `held` has the valid values, by key; `place` has every key that was written.

    keys: the keys as scalars, by text.
    """

    place: Place
    keys: dict[str, Scalar] = field(default_factory=dict)
    held: dict[str, Checked] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        return key in self.held

    def one(self, key: str) -> Scalar | None:
        """The single value under a key; None if it is absent or wrong."""
        found = self.held.get(key)
        assert found is None or isinstance(found, Scalar), key
        return found

    def word(self, key: str, default: str = "") -> str:
        """The word under a key, or `default` if it is absent or wrong."""
        found = self.one(key)
        return default if found is None else found.text

    def several(self, key: str) -> tuple[Scalar, ...] | None:
        """The single values in the list under a key; None if it is absent or wrong."""
        found = self.held.get(key)
        if found is None:
            return None
        assert isinstance(found, tuple), key
        return tuple(item for item in found if isinstance(item, Scalar))

    def block(self, key: str) -> Block:
        """The mapping under a key; an empty one if it is absent or wrong."""
        found = self.held.get(key)
        if found is None:
            return Block(self.place)
        assert isinstance(found, Block), key
        return found

    def stages(self, key: str) -> tuple[Block, ...] | None:
        """The mappings in the list under a key; None if it is absent or wrong."""
        found = self.held.get(key)
        if found is None:
            return None
        assert isinstance(found, tuple), key
        return tuple(item for item in found if isinstance(item, Block))

    def free(self, key: str) -> Mapping | None:
        """The mapping of any shape under a key; None if it is absent or wrong."""
        found = self.held.get(key)
        return found if isinstance(found, Mapping) else None

    def ones(self) -> Iterator[tuple[str, Scalar]]:
        """Every name and its single value."""
        return ((name, value) for name, value in self.held.items() if isinstance(value, Scalar))

    def blocks(self) -> Iterator[tuple[str, Block]]:
        """Every name and its mapping."""
        return ((name, value) for name, value in self.held.items() if isinstance(value, Block))


Checked = Scalar | Mapping | Block | tuple["Scalar | Block", ...]


def read_shape(source: Source, report: Report) -> Block | None:
    """The checked root of a file; None if it is not YAML (reasons in `report`).

    A wrong part is reported and omitted; the parts next to it are still checked.
    """
    root = read_yaml(source, report)
    if root is None:
        return None
    if root.key("rewardspec") is None:
        report.error(
            "version",
            "the spec has no language version",
            _start(root),
            help="begin it with `rewardspec: 1`",
        )
    lists = root.get("lists")
    named = [key.text for key, _ in lists.items] if isinstance(lists, Mapping) else []
    named = [name for name in named if NAME.match(name) and name not in KEYWORDS | NO_LISTS]
    found = _Checker(report, tuple(named)).keyed(root, root.span, SPEC)
    assert found is not None
    found.held.setdefault("rewardspec", Scalar(Span(source, 0, 0), VERSION))
    return found


@dataclass(frozen=True)
class _Checker:
    """Checks a node against the kind that its key takes. Returns None, with the reason reported, if it is wrong.

    at: the place of a diagnostic about an empty value. key: the key of the value. lists: the names of the spec's lists.
    """

    report: Report
    lists: tuple[str, ...] = ()

    def check(self, node: Node, at: Span, key: str, kind: Kind) -> Checked | None:
        match kind:
            case One():
                return self.one(node, at)
            case Reason():
                return self.reason(node, at, key)
            case Choice():
                return self.choice(node, at, key, kind)
            case Several():
                return self.several(node, at)
            case Pair():
                return self.pair(node, at)
            case Named():
                return self.named(node, at, kind)
            case Free():
                return self.mapping(node, at)
            case Part():
                return self.part(node, at, kind)
            case Parts():
                return self.parts(node, at, kind.each)

    def one(self, node: Node, at: Span) -> Scalar | None:
        if isinstance(node, Scalar):
            return node
        self.wrong(node, at, "expected a single value, not a list or mapping")
        return None

    def reason(self, node: Node, at: Span, key: str) -> Scalar | None:
        """A text that contains a letter and is not a number, null or truth value in YAML."""
        scalar = self.one(node, at)
        if scalar is None:
            return None
        text = scalar.text.strip()
        plain = scalar.style is None and (NOT_TEXT.fullmatch(text) is not None or text.lower() in NOT_WORDS)
        if not plain and any(char.isalpha() for char in text):
            return scalar
        self.report.error(
            "no-reason",
            f"`{shorten(key)}` is allowed without a reason",
            _written(node, at),
            help=f"give a reason: `{shorten(key)}: logged only`",
        )
        return None

    def choice(self, node: Node, at: Span, key: str, kind: Choice) -> Scalar | None:
        scalar = self.one(node, at)
        words = (*kind.words, *self.lists) if kind.or_list else kind.words
        if scalar is None or scalar.text in words:
            return scalar
        text = shorten(scalar.text)
        self.report.error(
            "unknown-word",
            f"`{text}` is not one of {', '.join(f'`{shorten(word)}`' for word in words)}",
            node.span,
            help=_word_here(text, key, words) or (_new_list(scalar.text) if kind.or_list else None),
        )
        return None

    def several(self, node: Node, at: Span) -> tuple[Scalar, ...] | None:
        if not isinstance(node, Sequence):
            self.wrong(node, at, "expected a list: `[0, 1]`")
            return None
        if not node.items:
            self.wrong(node, at, "the list of values is empty")
            return None
        return self.items(node, at)

    def pair(self, node: Node, at: Span) -> tuple[Scalar, ...] | None:
        if not isinstance(node, Sequence) or len(node.items) != 2:
            self.wrong(node, at, "expected two values: `[lowest, highest]`")
            return None
        return self.items(node, at)

    def items(self, node: Sequence, at: Span) -> tuple[Scalar, ...] | None:
        found = [self.one(item, at) for item in node.items]
        right = tuple(item for item in found if item is not None)
        return right if len(right) == len(found) else None

    def mapping(self, node: Node, at: Span) -> Mapping | None:
        if isinstance(node, Mapping):
            return node
        if isinstance(node, Scalar) and node.style is None and not node.text:
            return Mapping(node.span, ())
        self.wrong(node, at, "expected `name: value` pairs, one per line")
        return None

    def named(self, node: Node, at: Span, kind: Named) -> Block | None:
        mapping = self.mapping(node, at)
        if mapping is None:
            return None
        block = Block(_place(at, mapping), {key.text: key for key, _ in mapping.items})
        for key, value in mapping.items:
            found = self.check(value, key.span, key.text, kind.each)
            if found is not None:
                block.held[key.text] = found
        return block

    def part(self, node: Node, at: Span, part: Part) -> Block | None:
        if isinstance(node, Scalar) and part.short and (node.text or node.style or part is STAGE):
            return Block(_place(at, node), held={part.short: node})
        if not part.may_be_empty and not isinstance(node, Mapping):
            self.wrong(node, at, "expected `name: value` pairs, one per line")
            return None
        mapping = self.mapping(node, at)
        return None if mapping is None else self.keyed(mapping, at, part)

    def keyed(self, mapping: Mapping, at: Span, part: Part) -> Block | None:
        """The keys of a part; None if a required one is missing or wrong."""
        block = Block(_place(at, mapping), {key.text: key for key, _ in mapping.items})
        for key, value in mapping.items:
            if key.text not in part.keys:
                self.unknown(key, part)
                continue
            found = self.check(value, key.span, key.text, part.keys[key.text].kind)
            if found is not None:
                block.held[key.text] = found
        if part is SPEC:
            return block
        needed = [name for name, key in part.keys.items() if key.required]
        for missing in needed:
            if mapping.key(missing) is None:
                self.report.error("missing-key", f"the key `{missing}` is missing", _start(mapping))
        return block if all(key in block for key in needed) else None

    def unknown(self, key: Scalar, part: Part) -> None:
        known = list(part.keys)
        foreign = KEYS if part is SPEC else PART_KEYS if part in (SIGNAL, COMPONENT, STAGE) else {}
        self.report.error(
            "unknown-key",
            f"unknown key `{shorten(key.text)}`",
            key.span,
            help=help_for(key.text, known, foreign, f"the keys are {', '.join(known)}"),
        )

    def parts(self, node: Node, at: Span, part: Part) -> tuple[Block, ...] | None:
        if not isinstance(node, Sequence):
            self.report.error("wrong-type", "expected a list, one `- ` per line", node.span)
            return None
        found = [self.part(item, at, part) for item in node.items]
        right = tuple(block for block in found if block is not None)
        return right if len(right) == len(found) else None

    def wrong(self, node: Node, at: Span, message: str) -> None:
        self.report.error("wrong-type", message, _written(node, at))


def _written(node: Node, at: Span) -> Span:
    """The text of a value; the key's if the value is empty."""
    return node.span if node.span.text.strip() else at


def _place(name: Span, node: Node) -> Place:
    if not isinstance(node, Mapping):
        return Place(name, node.span)
    return Place(name, node.span, {key.text: _place(key.span, value) for key, value in node.items})


def _word_here(text: str, key: str, words: tuple[str, ...]) -> str | None:
    """The help for a word that a key does not take. `WORDS` answers for words of other programs, key by key."""
    here = {word: answer for word, answer in WORDS.items() if f"`{key}:" in answer}
    return help_for(text, words, here)


def _new_list(name: str) -> str | None:
    """The help for a level that could be a list which is not declared."""
    return f"declare the list: `lists: {{{name}: {{ordered: true}}}}`" if NAME.fullmatch(name) else None


def _start(node: Node) -> Span:
    start = node.span.start
    end = node.span.source.text.find("\n", start)
    return node.span.source.span(start, min(end if end >= 0 else node.span.end, node.span.end))
