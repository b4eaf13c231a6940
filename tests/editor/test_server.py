"""`rewardspec lsp`, asked by a client over standard input and output."""

import asyncio
import os
import sys

import pytest
from marked import SPEC

types = pytest.importorskip("lsprotocol.types", reason="needs pygls")
client_of = pytest.importorskip("pygls.lsp.client", reason="needs pygls")

from rewardspec.editor.document import Document  # noqa: E402
from rewardspec.editor.later import Unfinished, findings_within  # noqa: E402
from rewardspec.text.diagnostics import Diagnostic  # noqa: E402
from rewardspec.text.source import Source  # noqa: E402

PATIENCE = 60  # seconds: of a machine that is busy, not of a claim


class Session:
    """A session with a server of its own. Positions are (line, unit)."""

    def __init__(self, folder):
        self.folder = folder
        self.client = client_of.LanguageClient("test", "1")
        self.published = asyncio.Queue()
        self.version = 0
        self.uri = (folder / "spec 数.yaml").as_uri()
        self.of = types.TextDocumentIdentifier(self.uri)

    async def begin(self):
        publish = types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS
        self.client.feature(publish)(lambda params: self.published.put_nowait(params))
        paths = os.pathsep.join(path for path in sys.path if path)
        await self.client.start_io(
            *(sys.executable, "-P", "-m", "rewardspec.cli", "lsp"),
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self.process = self.client._server
        return await self.client.initialize_async(types.InitializeParams(types.ClientCapabilities()))

    async def end(self):
        await self.client.shutdown_async(None)
        self.client.exit(None)
        return await asyncio.wait_for(self.process.wait(), PATIENCE)

    def open(self, text):
        item = types.TextDocumentItem(self.uri, "yaml", 0, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def type(self, text):
        self.version += 1
        changes = [types.TextDocumentContentChangeWholeDocument(text)]
        document = types.VersionedTextDocumentIdentifier(self.version, self.uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, changes))

    async def told(self, code):
        """The next diagnostics that have this code; None is for none at all."""
        while True:
            params = await asyncio.wait_for(self.published.get(), PATIENCE)
            codes = [one.code for one in params.diagnostics]
            if code in codes or (code is None and not codes):
                return params

    async def proposed(self, line, unit):
        place = types.CompletionParams(self.of, types.Position(line, unit))
        return (await self.client.text_document_completion_async(place)).items


def applied(text, edits):
    """The text with edits of one line each made, counted in UTF-16."""
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda e: (-e.range.start.line, -e.range.start.character)):
        assert edit.range.start.line == edit.range.end.line
        row = lines[edit.range.start.line].encode("utf-16-le")
        start, end = 2 * edit.range.start.character, 2 * edit.range.end.character
        lines[edit.range.start.line] = (row[:start] + edit.new_text.encode("utf-16-le") + row[end:]).decode("utf-16-le")
    return "\n".join(lines)


async def session(folder):
    (folder / "evil.py").write_text("open('ran', 'w')\ndef f(completion):\n    return 1\n")
    for name in ("json", "rewardspec", "asyncio"):  # what a folder of a stranger could hold
        (folder / f"{name}.py").write_text("open('ran', 'w')\nraise SystemExit\n")
    this = Session(folder)
    client = this.client
    told = await this.begin()
    assert told.capabilities.position_encoding == "utf-16"
    text = SPEC.replace("advantage: grpo", "guarantees: {'數 😀 ok': right_above_wrong(corect)}\nadvantage: gdpo")
    text = text.replace("length: {", "judged: {python: 'evil:f', range: [0, 1], missing: ignore}\n  length: {")
    this.open("services: {}\n")
    assert not (await this.told(None)).diagnostics
    line = text.split("\n").index("guarantees: {'數 😀 ok': right_above_wrong(corect)}")
    typed = text.split("\n")[line].index("corect") + 1  # 😀 is two units
    this.type(text)

    (error,) = (await this.told("unknown-name")).diagnostics
    assert (error.severity, error.source) == (types.DiagnosticSeverity.Error, "rewardspec")
    assert (error.range.start, error.range.end) == (types.Position(line, typed), types.Position(line, typed + 6))
    assert "help: did you mean `correct`?" in error.message
    actions = await client.text_document_code_action_async(
        types.CodeActionParams(this.of, error.range, types.CodeActionContext([error]))
    )
    assert actions[0].is_preferred and actions[0].title == "Change `corect` to `correct`"
    mended = applied(text, actions[0].edit.changes[this.uri])
    assert mended == text.replace("corect", "correct")

    this.type(mended)
    published = await this.told("phantom-gradient")
    assert published.version == this.version
    finding = next(one for one in published.diagnostics if one.code == "phantom-gradient")
    assert finding.severity == types.DiagnosticSeverity.Warning
    assert finding.code_description.href.endswith("/phantom_gradient.py")
    actions = await client.text_document_code_action_async(
        types.CodeActionParams(this.of, finding.range, types.CodeActionContext([finding]))
    )
    assert "Allow `phantom-gradient` in this spec, with a reason" in [action.title for action in actions]

    at = types.Position(line, typed + 1)
    hovered = await client.text_document_hover_async(types.HoverParams(this.of, at))
    assert "`{0, 1}`" in hovered.contents.value and hovered.range.start == types.Position(line, typed)
    labels = [item.label for item in await this.proposed(line, typed + 2)]
    assert {"correct", "zscore", "grpo"} <= set(labels)
    declared = await client.text_document_definition_async(types.DefinitionParams(this.of, at))
    assert (declared.uri, declared.range.start) == (this.uri, types.Position(8, 2))
    users = types.Position(9, 21)
    declared = await client.text_document_definition_async(types.DefinitionParams(this.of, users))
    assert declared.uri.endswith("/evil.py") and declared.range.start.line == 1
    places = await client.text_document_references_async(
        types.ReferenceParams(types.ReferenceContext(include_declaration=True), this.of, at)
    )
    assert [place.range.start.line for place in places] == [8, 10, line]
    renamed = await client.text_document_rename_async(types.RenameParams(this.of, at, "right"))
    assert applied(mended, renamed.changes[this.uri]) == mended.replace("correct", "right")
    with pytest.raises(Exception, match="is taken: the spec has a component of this name"):
        await client.text_document_rename_async(types.RenameParams(this.of, at, "length"))
    symbols = await client.text_document_document_symbol_async(types.DocumentSymbolParams(this.of))
    assert [one.name for one in symbols][:3] == ["rewardspec", "lists", "signals"]

    this.type(mended + "name:   'x'\n")
    edits = await client.text_document_formatting_async(
        types.DocumentFormattingParams(this.of, types.FormattingOptions(2, True))
    )
    assert [edit.new_text for edit in edits] == ["name: 'x'\n"]
    this.type(mended + "compon")  # what is typed is no YAML now
    assert "yaml" in {one.code for one in (await this.told("yaml")).diagnostics}
    assert "state" in [item.label for item in await this.proposed(mended.count("\n"), 6)]
    client.text_document_did_close(types.DidCloseTextDocumentParams(this.of))
    assert not (await this.told(None)).diagnostics
    assert await this.end() == 0
    assert not (folder / "ran").exists()


@pytest.mark.slow
def test_session_over_standard_input_and_output(tmp_path):
    asyncio.run(session(tmp_path))


def test_what_was_not_checked_is_information():
    from rewardspec.editor.messages import Converter  # needs lsprotocol

    document = Document(SPEC)
    note = Diagnostic("not-checked", "phantom-gradient (why)", document.source.span(0, 10), severity="note")
    sent = Converter("file:///spec.yaml", document).diagnostic(note)
    assert (sent.severity, sent.message) == (
        types.DiagnosticSeverity.Information,
        "not checked: phantom-gradient (why)",
    )


@pytest.mark.slow
def test_findings_end_in_time():
    with pytest.raises(Unfinished, match=r"they take over 0.001 seconds"):
        asyncio.run(findings_within(Source("x", SPEC.replace("grpo", "gdpo")), 0.001))


@pytest.mark.slow
def test_findings_end_when_typing_goes_on():
    async def typed():
        task = asyncio.create_task(findings_within(Source("x", SPEC), 60))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(typed())
