"""Names: where each occurs, its declaration, other names for it."""

from dataclasses import replace

import pytest
from marked import HEAD, SPEC, split
from places import SPECS

import rewardspec
from rewardspec.editor.document import Document
from rewardspec.editor.refer import CannotRename, definition, references, rename, replaced


def texts_of(marked, mark="|"):
    """The lines in which the name at the mark occurs, counted from 1."""
    document, at = split(marked, mark)
    return [document.source.line_column(one.start)[0] for one in references(document, at)]


def after(marked, name, mark="|"):
    """The text with the name at the mark changed."""
    document, at = split(marked, mark)
    return replaced(document.text, [(start, end, name) for start, end in rename(document, at, name)])


def test_references_inside_expressions_and_keys():
    text = SPEC.replace("advantage: grpo", "advantage: half(correct, y=limit) + any(task == math)")
    assert texts_of(text.replace("  limit: 4000", "  li|mit: 4000")) == [10, 12, 14]
    assert texts_of(text.replace("correct: {values", "cor|rect: {values")) == [9, 10, 14]
    assert texts_of(text.replace("half(x, y=1)", "ha|lf(x, y=1)")) == [13, 14]
    assert texts_of(text.replace("half(x, y=1)", "half(x, y|=1)")) == [13, 13, 14]  # and `y=limit` of the call


def test_a_parameter_hides_a_component_of_its_name():
    text = HEAD + "components:\n  x: {values: [0, 1]}\ndefine:\n  half(x): 0.5 * x\nadvantage: half(x) - mean(x|)\n"
    assert texts_of(text) == [3, 6, 6]
    assert after(text, "y").count("half(x): 0.5 * x") == 1


def test_names_of_lists_tokens_and_ids():
    text = SPEC.replace("components:", "components:\n  step_ok: {values: [0, 1], level: turn}")
    text = text.replace("grpo", "sum(step_ok * position(turn), over=rollout)")
    assert texts_of(text.replace("turn: {ordered", "tur|n: {ordered")) == [3, 9, 15]
    text = HEAD + "condition: {tokens: {high: a, low: b}, prior: {high|: 0.5}, label: {high: a >= 1}}\n"
    assert texts_of(text) == [2, 2, 2]
    text = SPEC + "state: {price: {init: 0, range: [0, 1], update: price, by: prompt|}}\n"
    assert texts_of(text) == [7, 15]


def test_a_value_of_a_column_is_no_component_of_its_name():
    text = (
        HEAD + "signals: {task: {values: [math, code]}}\ncomponents:\n  math: {expr: task == math}\nadvantage: math\n"
    )
    document = Document(text)
    places = rename(document, text.index("math: {expr"), "maths")
    assert [text[start - 6 : start] for start, _ in places] == ["nts:\n ", "ntage:"] or len(places) == 2
    changed = replaced(text, [(start, end, "maths") for start, end in places])
    assert "maths: {expr: task == math}" in changed and changed.endswith("advantage: maths\n")


def test_rename_in_quotes_and_on_further_lines():
    text = HEAD + (
        "signals: {tokens: {range: [0, .inf]}}\ncomponents:\n  a: {values: [0, 1]}\n"
        "  b:\n    expr: >\n      min(tokens,\n"
        '      100)\n  c: {expr: "max(tokens, 2)"}\nadvantage: decoupled\n'
    )
    changed = after(text.replace("{tokens: {", "{tok|ens: {"), "length")
    assert changed == text.replace("tokens", "length")
    assert rewardspec.loads(changed)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("length", "the spec has a component of this name"),
        ("limit", "the spec has a definition of this name"),
        ("9lives", "not a valid name"),
        ("a b", "not a valid name"),
        ("if", "not a valid name"),
        ("grpo", "name of the language"),
        ("group", "name of the language"),
    ],
)
def test_rename_refuses(name, reason):
    with pytest.raises(CannotRename, match=reason):
        after(SPEC.replace("correct: {values", "corr|ect: {values"), name)


def test_rename_refuses_what_would_be_another_name_in_a_place():
    text = HEAD + "components:\n  a|: {values: [0, 1]}\ndefine:\n  f(x): x * a\nadvantage: f(a)\n"
    with pytest.raises(CannotRename, match="another meaning"):
        after(text, "x")
    with pytest.raises(CannotRename, match="name of the language"):
        after(SPEC.replace("grpo", "gr|po"), "mine")
    with pytest.raises(CannotRename, match="not declared"):
        after(SPEC.replace("grpo", "cor|ect"), "mine")
    with pytest.raises(CannotRename, match="no name here"):
        after(SPEC.replace("0.5 *", "0.|5 *"), "mine")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gdpo/math", "rc_grpo/rc_grpo", "gigpo/gigpo", "laconic/laconic", "prs/long"])
def test_names_of_published_specs_can_be_renamed_and_back(name):
    text = (SPECS / f"{name}.yaml").read_text()
    document = Document(text)
    assert document.names.declared
    for own in list(document.names.declared.values())[:6]:
        places = rename(document, own.start, "fresh_name")
        changed = Document(replaced(text, [(start, end, "fresh_name") for start, end in places]))
        assert changed.checked[0] is not None
        fresh = replace(own.symbol, name="fresh_name")
        back = rename(changed, changed.names.of(fresh)[0].start, own.symbol.name)
        assert replaced(changed.text, [(start, end, own.symbol.name) for start, end in back]) == text


# Declarations


def place_of(marked, folders=(), mark="|"):
    """(file, line of its text) that the name at the mark leads to."""
    document, at = split(marked, mark)
    target = definition(document, at, folders)
    if target is None:
        return None
    line = target.source.line_column(target.start)[0]
    return target.path and target.path.name, target.source.line(line).strip()


def test_declarations_of_names():
    assert place_of(SPEC.replace("tokens <= lim", "tokens <= li|m")) == (None, "limit: 4000")
    assert place_of(SPEC.replace("tokens <=", "tok|ens <=")) == (None, "tokens: {range: [0, .inf]}")
    assert place_of(SPEC.replace("grpo", "gr|po")) == ("prelude.yaml", "grpo: zscore(total)")
    assert place_of(SPEC.replace("grpo", "zs|core(total)"))[1].startswith("zscore(x, over=group")
    used = SPEC.replace("correct: {values: [0, 1]}", "correct: {use: toolrl.corr|ectness}")
    assert place_of(used)[0] == "toolrl.py" and "@reward" in place_of(used)[1]
    assert place_of(SPEC + "allow: {phantom|-gradient: meant}\n")[0] == "phantom_gradient.py"
    assert place_of(SPEC.replace("0.5 *", "0.|5 *")) is None


def test_functions_of_the_user_are_found_and_not_run(tmp_path):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "style.py").write_text("open('ran', 'w')\nraise SystemExit\n\n\ndef polite(completion):\n    return 1\n")
    (package / "other.py").write_text("# polite\nfrom .style import polite\n")
    text = SPEC.replace("correct: {values: [0, 1]}", "correct: {python: mine.st|yle:polite, values: [0, 1]}")
    assert place_of(text, [tmp_path / "none", tmp_path]) == ("style.py", "def polite(completion):")
    assert place_of(text.replace("|yle", "|yle2"), [tmp_path]) is None
    assert place_of(text.replace("st|yle", "oth|er"), [tmp_path]) == ("other.py", "# polite")  # the file at least
    assert not (tmp_path / "ran").exists() and not list(package.glob("__pycache__"))
