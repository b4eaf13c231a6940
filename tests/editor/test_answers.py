"""Hover, quick fixes, formatting, symbols, positions, and files that are half typed."""

import random
import sys

import pytest
from commands_in_process import run
from marked import HEAD, SPEC, proposed, split, told
from places import CASES, SPECS
from test_cases import CASE

from rewardspec.editor.document import Document
from rewardspec.editor.fixes import A_REASON, fixes
from rewardspec.editor.hover import hover
from rewardspec.editor.later import answer
from rewardspec.editor.layout import format_edits
from rewardspec.editor.names import Symbol
from rewardspec.editor.positions import offset, position
from rewardspec.editor.refer import definition, references, replaced
from rewardspec.editor.symbols import symbols
from rewardspec.lint import findings
from rewardspec.spec import check
from rewardspec.syntax.formatter import formatted
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source

# Hover


def test_hover_has_level_and_domain():
    assert "one value for each rollout, in `{0, 1}`" in told(SPEC.replace("length: {", "len|gth: {"))
    assert "length = tokens <= limit if correct >= 1 else 0\nlimit = 4000" in told(
        SPEC.replace("length: {", "len|gth: {")
    )
    assert "weight `0.5`" in told(SPEC.replace("length: {", "len|gth: {"))
    assert "one value for each rollout, in `[0, inf)`" in told(SPEC.replace("tokens <=", "tok|ens <="))
    text = SPEC.replace("limit: 4000", "limit: mean(tokens, over=batch)")
    assert "one value for the batch" in told(text.replace("tokens <= limit", "tokens <= lim|it"))
    assert "one value for each group" in told(SPEC.replace("limit: 4000", "lim|it: mean(correct)"))


def test_hover_of_a_scheme_has_its_formula():
    text = told(SPEC.replace("grpo", "gr|po"))
    assert "grpo = zscore(total)" in text and "total = sum(weights" in text and "GDPO Eq. 1-2" in text


def test_hover_of_the_rest():
    assert "`error` (default)" in told(SPEC.replace("correct: {", "correct: {miss|ing: error, "))
    assert "std([0, 1 | 1, 3])" in told(SPEC.replace("grpo", "st~d(correct)"), "~")
    assert "toolrl.correctness" in told(SPEC.replace("values: [0, 1]}", "use: toolrl.corr|ectness}", 1))
    assert "half(x, y=1): 0.5 * x * y" in told(SPEC.replace("grpo", "ha|lf(correct)"))
    assert "in `guarantees` only" in told(SPEC + "guarantees: {ok: advan|tage > 0}\n")
    assert "parameter of `half`" in told(SPEC.replace("0.5 * x", "0.5 * |x"))
    assert "without a right answer" in told(SPEC + "allow:\n  phantom|-gradient: meant\n")
    assert told(SPEC.replace("4000", "40|00")) == ""


def test_text_of_a_spec_cannot_leave_its_block():
    text = SPEC.replace("limit: 4000", "limit: |\n    4000 ```\n    [click](command:evil)", 1)
    found = told(text.replace("tokens <= limit", "tokens <= li~mit"), "~")
    assert "````" in found or "click" not in found


def test_hover_where_the_file_is_no_yaml():
    text = SPEC.replace("  limit: 4000", "  limi\n  limit: 4000")
    assert Document(text).checked[0] is None
    assert "{0, 1}" in told(text.replace("correct >= 1", "corr|ect >= 1"))


# Errors and their places


@pytest.mark.parametrize(
    ("line", "underlined"),
    [("le", "le"), ("b: {values: [0, 1]", "{values: [0, 1]"), ("b: {values: [0, 1", "[0, 1"), ("b: 'x", "'x")],
)
def test_errors_of_yaml_are_in_the_line_that_has_them(line, underlined):
    text = SPEC.replace("define:", f"  {line}\ndefine:")
    (error,) = Document(text).checked[1]
    assert (error.code, error.span.text) == ("yaml", underlined)


# Quick fixes


def fixed(text, code):
    """The text after the usual fix of the first diagnostic of this code, among errors and findings."""
    document = Document(text)
    spec, errors = document.checked
    found = [*errors, *(findings(spec).warnings if spec is not None else [])]
    one = next(d for d in found if d.code == code)
    offered = fixes(document, one)
    return replaced(text, offered[0].edits) if offered else None


@pytest.mark.parametrize(
    ("code", "before", "after"),
    [
        ("unknown-name", "tokens <= limt", "tokens <= limit"),
        ("unknown-key", "wieght: 0.5", "weight: 0.5"),
        ("unknown-function", "{expr: zscor(tokens)", "{expr: zscore(tokens)"),
        ("syntax", "correct = 1", "correct == 1"),
        ("syntax", "correct ≥ 1", "correct >= 1"),
        ("unknown-word", "missing: ignored", "missing: ignore"),
        ("empty-range", "range: [1, 0]", "range: [0, 1]"),
        ("unknown-reward", "use: toolrl.formt(opened=true)", "use: toolrl.format(opened=true)"),
        ("gate-never-opens", "when: correct >= 2", "when: correct >= 1"),
        ("yaml-comma", "expr: min(tokens, 1)", 'expr: "min(tokens, 1)"'),
    ],
)
def test_fix_of_a_help_text(code, before, after):
    places = {
        "tokens <= lim": "tokens <= limit",
        "wieght": "weight: 0.5",
        "{expr: zsc": "{expr: tokens <= limit",
        "correct =": "correct >= 1",
        "correct ≥": "correct >= 1",
        "missing": "values: [0, 1]",
        "range": "values: [0, 1]",
        "use": "values: [0, 1]",
        "when": "when: correct >= 1",
        "expr": "expr: tokens <= limit",
    }
    old = next(text for start, text in places.items() if before.startswith(start))
    more = "values: [0, 1], " if before.startswith("missing") else ""
    text = SPEC.replace(old, more + before, 1)
    assert fixed(text, code) == SPEC.replace(old, more + after, 1)


def test_fixes_that_add_and_remove_keys():
    assert fixed(SPEC.replace("advantage: grpo\n", ""), "no-advantage") == SPEC.replace("grpo", "gdpo")
    assert fixed(SPEC.removeprefix(HEAD), "version") == SPEC
    alone = SPEC.replace("values: [0, 1]}", "values: [0, 1], otherwise: 1}", 1)
    assert fixed(alone, "otherwise-alone") == SPEC
    block = HEAD + "components:\n  a:\n    weight: 2\nadvantage: grpo\n"
    assert fixed(block, "no-domain") == block.replace("weight: 2\n", "weight: 2\n    values: [0, 1]\n")


def test_an_example_in_a_help_text_is_no_fix():
    """`toolrl.format` and `correct` of these texts are not what was meant."""
    assert fixed(SPEC.replace("values: [0, 1]", "use: formatting", 1), "bad-use") is None
    text = SPEC.replace("correct", "solved").replace("grpo", "grpo\nkeep: solved >= 1")
    assert "correct" not in (fixed(text, "wrong-level") or "")


def test_findings_can_be_allowed_where_they_are_and_for_the_spec():
    text = SPEC.replace("weight: 0.5", "weight: 0")
    document = Document(text)
    spec, _ = document.checked
    one = next(d for d in findings(spec).warnings if d.code == "zero-weight")
    offered = {fix.title: replaced(text, fix.edits) for fix in fixes(document, one) if fix.title.startswith("Allow")}
    inside, whole = offered.values()
    assert f"weight: 0, allow: {{zero-weight: {A_REASON}}}}}" in inside
    assert whole.endswith(f"allow:\n  zero-weight: {A_REASON}\n")
    for allowed in (inside, whole):
        spec, _ = check(Source("", allowed))
        assert "zero-weight" not in {d.code for d in findings(spec).warnings}


@pytest.mark.slow
def test_every_fix_of_the_cases_mends_its_error():
    """The error is gone, and the file is YAML. Most errors whose help has a replacement have a fix."""
    fixes_found = 0
    for path in sorted(CASES.glob("*.md")):
        for match in list(CASE.finditer(path.read_text()))[::3]:
            document = Document(match["spec"])
            for error in document.checked[1]:
                for fix in fixes(document, error):
                    _, report = check(Source("", replaced(document.text, fix.edits)))
                    left = [(d.code, d.message) for d in report.diagnostics]
                    had = [(d.code, d.message) for d in document.checked[1]]
                    assert left.count((error.code, error.message)) < had.count((error.code, error.message)), fix
                    fixes_found += 1
    assert fixes_found > 30


# Formatting and symbols


@pytest.mark.parametrize(
    "text", [SPEC, SPEC.replace("{values: [0, 1]}", "{ values: [0,1] }"), SPEC + "\n\n", "a: b: c\n"]
)
def test_formatting_is_that_of_the_command(text):
    want = formatted(Source("", text), Report())
    assert replaced(text, format_edits(Document(text))) == (text if want is None else want)


def test_symbols_are_sections_with_their_names():
    found = {item.name: [inner.name for inner in item.items] for item in symbols(Document(SPEC))}
    assert found == {
        "rewardspec": [],
        "lists": ["turn"],
        "signals": ["tokens", "task", "prompt"],
        "components": ["correct", "length"],
        "define": ["limit", "half(x, y=1)"],
        "advantage": [],
    }


# Positions


def test_positions_count_units_of_the_encoding():
    """😀 is two units of UTF-16 and four of UTF-8, 数 one and three: as Python encodes them."""
    text = "name: 数😀x\n# 🎉 y\nlast"
    source = Source("", text)
    for encoding, width, codec in (("utf-8", 1, "utf-8"), ("utf-16", 2, "utf-16-le"), ("utf-32", 4, "utf-32-le")):
        for at in range(len(text) + 1):
            line = text.count("\n", 0, at)
            before = text[text.rfind("\n", 0, at) + 1 : at]
            place = (line, len(before.encode(codec)) // width)
            assert position(source, at, encoding) == place
            assert offset(source, *place, encoding) == at
    assert offset(source, 0, 8, "utf-16") == text.index("😀")  # within the pair
    assert offset(source, 0, 99) == text.index("\n") and offset(source, 9, 0) == len(text)


def test_line_breaks_of_other_systems():
    document = Document(SPEC.replace("\n", "\r\n"))
    assert document.text == SPEC and document.checked[0] is not None
    assert document.line_break == "\r\n"


# The command


def test_command_names_the_package_that_it_needs(monkeypatch):
    for name in ("lsprotocol", "pygls"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "rewardspec.editor.server", raising=False)
    done = run("lsp")
    assert done.returncode == 2 and "pip install 'rewardspec[lsp]'" in done.stderr


# Any text


@pytest.mark.slow
def test_no_answer_fails_on_what_is_half_typed():
    """Prefixes, and texts with a piece cut out, of published specs and cases, at random places."""
    draw = random.Random(1)
    texts = [path.read_text() for path in SPECS.glob("*/*.yaml")]
    texts += [match["spec"] for path in CASES.glob("*.md") for match in CASE.finditer(path.read_text())]
    for _ in range(120):
        text = draw.choice(texts)
        one, other = sorted(draw.randrange(len(text) + 1) for _ in range(2))
        document = Document(draw.choice([text[:other], text[:one] + text[other:], text[one:]]))
        at = draw.randrange(len(document.text) + 1)
        proposed(document.text[:at] + "\0" + document.text[at:], "\0")
        hover(document, at), definition(document, at), references(document, at), symbols(document)
        for error in document.checked[1][:1]:
            fixes(document, error)
        format_edits(document)


@pytest.mark.slow
def test_a_file_of_5000_lines_answers():
    lines = [f"  d{i}: {i}" for i in range(2400)] + ["  # more"] * 2500
    text = "\n".join(
        [HEAD + "components:\n  correct: {values: [0, 1], weight: d7}", "define:", *lines, "advantage: gr"]
    )
    document, _ = split(text + "\0", "\0")
    assert "grpo" in proposed(text + "\0", "\0") and len(references(document, text.index("d7}"))) == 2
    assert document.names.of(Symbol("value", "d7"))[0].end == text.index("d7}") + 2


def test_other_yaml_is_left_alone():
    prelude = SPECS / "prelude.yaml"  # where "go to definition" leads
    assert not Document(prelude.read_text(), str(prelude)).is_spec
    assert not Document("services:\n  web: {image: x}\n").is_spec
    assert proposed("services:\n  web: {image: x, |}\n") == proposed("serv: 1\n|") == []
    assert proposed("|") == proposed("# mine\nrew|") == ["rewardspec"]
    assert Document("# rewards\nrewardspec: 1\n").is_spec


@pytest.mark.slow
def test_findings_travel_as_plain_values():
    """The second process gives what `check` gives."""
    text = (SPECS / "gdpo/math.yaml").read_text()
    spec, _ = check(Source("x", text))
    found = findings(spec)
    assert [(d["code"], d["start"]) for d in answer(text, "x")] == [
        (d.code, d.span.start) for d in (*found.warnings, *found.notes)
    ]
