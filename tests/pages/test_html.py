"""Pages as files: what stands in them, what they allow, and what is said where none can be written."""

import json
import os
import re
from base64 import b64encode
from dataclasses import fields
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pages_by_hand import HOSTILE, LONG, NOTED, SPECS, data_of, log
from places import PACKAGE
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.pages import page as pages
from rewardspec.pages.page import NoLibrary
from rewardspec.pages.texts import bounded
from rewardspec.runs.audit import CODES
from rewardspec.runs.by import ByValue
from rewardspec.runs.components import ComponentHealth
from rewardspec.runs.health import StepHealth

pytest.importorskip("bokeh")


def run(*arguments, status=0):
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == status, done.output
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("pages")
    log(made / "run.jsonl")
    for name, text in SPECS.items():
        (made / f"{name}.yaml").write_text(text)
    return made


@pytest.fixture(scope="module")
def replayed(folder):
    """The page of a run under two specs, and what the command printed as JSON."""
    specs = "--spec", folder / "a.yaml", "--spec", folder / "b.yaml"
    options = "--from", "table", "--group-by", "group", "--by", "source", "--format", "json"
    done = run("replay", folder / "run.jsonl", *specs, *options, "-o", folder / "two.html")
    assert "wrote " in done.stderr
    return (folder / "two.html").read_text(encoding="utf-8"), json.loads(done.stdout)


class Parts(HTMLParser):
    """Elements of a page, and what is in its scripts."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.open = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.open = dict(attrs)
            self.scripts.append((self.open, ""))

    def handle_endtag(self, tag):
        self.open = None if tag == "script" else self.open

    def handle_data(self, data):
        if self.open is not None:
            self.scripts[-1] = (self.open, self.scripts[-1][1] + data)


@pytest.mark.slow
def test_the_page_has_the_json_of_the_command(replayed):
    text, printed = replayed
    data = data_of(text)
    assert data["found"] == printed and data["suggestions"] is None
    assert {row["spec"] for row in data["found"]["steps"]} == {"sums", "gated"}


@pytest.mark.slow
def test_the_function_writes_the_page_of_the_command(folder, replayed):
    rewardspec.replay(
        folder / "run.jsonl",
        [folder / "a.yaml", folder / "b.yaml"],
        format="table",
        group_by="group",
        by="source",
        output=folder / "again.html",
    )
    again, first = data_of((folder / "again.html").read_text(encoding="utf-8")), data_of(replayed[0])
    assert again == first


@pytest.mark.slow
def test_a_page_allows_its_own_scripts_and_nothing_else(replayed):
    parts = Parts(replayed[0])
    (policy,) = [attrs["content"] for tag, attrs in parts.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert {*rules} == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
    own = [text for attrs, text in parts.scripts if attrs.get("type") != "application/json"]
    hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in own]
    assert len(own) == 3 and rules["script-src"].split() == hashes
    assert [tag for tag, _ in parts.tags if tag in ("link", "img", "iframe", "object", "base", "form")] == []
    assert not [attrs for _, attrs in parts.tags if {"src", "href", "onclick", "onerror"} & {*attrs}]


@pytest.mark.slow
def test_a_page_is_a_few_megabytes_at_most(replayed):
    assert len(replayed[0].encode()) < 2_500_000  # 1.4 MB of it draw charts


@pytest.mark.slow
def test_texts_of_others_stand_in_the_data_alone(replayed):
    text, _ = replayed
    own = PACKAGE / "pages" / "browser"
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", all_of(own))
    for hostile in HOSTILE:
        assert hostile not in text
    raw = next(raw for attrs, raw in Parts(text).scripts if attrs.get("type") == "application/json")
    assert raw.isascii() and not {"<", ">", "&", "\0"} & {*raw}


def all_of(folder):
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.js")))


@pytest.mark.slow
def test_texts_are_those_of_the_rollouts_and_long_ones_are_cut(folder, replayed):
    texts = data_of(replayed[0])["texts"]
    rows = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    assert texts["of"]
    for name, own in texts["of"].items():
        row = rows[int(name.rpartition(":")[2]) - 1]
        for what in ("prompt", "completion"):
            told = texts["texts"][own[what]]
            assert told["length"] == len(row[what])
            assert row[what].startswith(told["text"]) and row[what].endswith(told["end"])
            assert len(told["text"]) + len(told["end"]) + told["cut"] == len(row[what])
    assert any(told["cut"] and told["length"] == len(LONG) for told in texts["texts"])
    shown = {texts["texts"][own["completion"]]["text"] for own in texts["of"].values()}
    assert {*HOSTILE} <= shown


def test_the_middle_of_a_long_text_is_left_out():
    assert bounded("abcdefgh", 4) == {"text": "abc", "end": "h", "cut": 4, "length": 8}
    assert bounded("abcd", 4) == {"text": "abcd", "end": "", "cut": 0, "length": 4}


@pytest.mark.slow
def test_of_two_logs_with_the_same_steps_each_rollout_has_its_own_text(folder, tmp_path):
    rows = (folder / "run.jsonl").read_text().splitlines()
    for name in ("one", "other"):
        texts = [json.dumps({**json.loads(row), "completion": f"of {name}"}) for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(texts))
    paths = [tmp_path / "one.jsonl", tmp_path / "other.jsonl"]
    rewardspec.replay(paths, folder / "a.yaml", format="table", group_by="group", output=tmp_path / "page.html")
    texts = data_of((tmp_path / "page.html").read_text())["texts"]
    told = {
        (Path(name.rpartition(":")[0]).stem, texts["texts"][own["completion"]]["text"])
        for name, own in texts["of"].items()
    }
    assert told and told <= {("one", "of one"), ("other", "of other")}


@pytest.mark.slow
def test_a_log_without_texts_says_so(folder, tmp_path):
    rows = [json.loads(row) for row in (folder / "run.jsonl").read_text().splitlines()]
    bare = [{name: row[name] for name in row if name not in ("prompt", "completion")} for row in rows]
    (tmp_path / "bare.jsonl").write_text("\n".join(map(json.dumps, bare)))
    rewardspec.replay(
        tmp_path / "bare.jsonl", folder / "a.yaml", format="table", group_by="group", output=tmp_path / "p.html"
    )
    data = data_of((tmp_path / "p.html").read_text())
    assert data["notes"] == [NOTED] and data["texts"] == {"texts": [], "of": {}}


def test_every_remark_of_the_audit_is_explained():
    words = (PACKAGE / "pages" / "browser" / "words.js").read_text()
    table = words[words.index("const REMARKS") : words.index("const NOT_KNOWN")]
    assert re.findall(r'^  "([a-z-]+)":', table, re.MULTILINE) == [*CODES]


@pytest.mark.parametrize(
    ("table", "of"), [("OF_STEPS", StepHealth), ("OF_COMPONENTS", ComponentHealth), ("OF_VALUES", ByValue)]
)
def test_every_number_has_a_name_on_the_page(table, of):
    words = (PACKAGE / "pages" / "browser" / "words.js").read_text()
    own = words[words.index(f"const {table} = [") :]
    keys = re.findall(r'^  \{ key: "(\w+)"', own[: own.index("];")], re.MULTILINE)
    assert sorted(keys) == sorted(field.name for field in fields(of))


def test_every_number_that_is_drawn_is_one_of_these():
    code = (PACKAGE / "pages" / "browser" / "replay.js").read_text()
    drawn = {*re.findall(r'line\("(\w+)"', code), *re.findall(r'\["(\w+)", "(?:wrong|tied|right)"\]', code)}
    assert len(drawn) == 10 and drawn <= {field.name for field in fields(StepHealth)}


def test_without_the_library_the_message_says_what_to_install(folder, monkeypatch):
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    done = run("replay", folder / "none.jsonl", "--spec", folder / "a.yaml", "-o", folder / "p.html", status=2)
    assert "pip install 'rewardspec[pages]'" in done.stderr
    with pytest.raises(NoLibrary, match="rewardspec\\[pages\\]"):
        rewardspec.replay(folder / "run.jsonl", folder / "a.yaml", output=folder / "p.html")
    assert not (folder / "p.html").exists()


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("a.yaml", "is read and would be overwritten"),
        ("run.jsonl", "is read and would be overwritten"),
        ("none/p.html", "there is no folder"),
        (".", "is a folder"),
        ("-", "not to standard output"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_read(folder, output, said):
    target = output if output == "-" else folder / output
    before = (folder / "a.yaml").read_text()
    done = run("replay", folder / "run.jsonl", "--spec", folder / "a.yaml", "-o", target, status=2)
    assert said in " ".join(done.stderr.split())
    assert (folder / "a.yaml").read_text() == before


def test_a_page_is_no_device_and_a_link_stays_one(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    arguments = "replay", folder / "run.jsonl", "--spec", folder / "a.yaml", "--from", "table", "--group-by", "group"
    assert "pipe is not a regular file" in run(*arguments, "-o", tmp_path / "pipe", status=2).stderr
    (tmp_path / "other").mkdir()
    (tmp_path / "link.html").symlink_to(tmp_path / "other" / "page.html")
    pages.write_page(tmp_path / "link.html", "one")
    pages.write_page(tmp_path / "link.html", "two")
    assert (tmp_path / "link.html").is_symlink() and (tmp_path / "other" / "page.html").read_text() == "two"
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["page.html"]


def test_numbers_that_json_does_not_have_are_null_or_named():
    assert json.loads(pages.embedded({"a": float("nan"), "b": [float("inf"), -float("inf")], "c": {1: 2.5}})) == {
        "a": None,
        "b": ["inf", "-inf"],
        "c": {"1": 2.5},
    }
