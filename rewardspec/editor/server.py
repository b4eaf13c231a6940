"""The language server: `rewardspec lsp`, over standard input and output.

A change is answered in two passes. Errors come soon after typing stops; findings, which can take long, from a process
of their own (`later.py`). Nothing that a spec names is imported, and only an editor's documents are read, apart from
the file in which a function under `python:` is looked for.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from rewardspec._version import __version__
from rewardspec.editor.completion import completions, fitting
from rewardspec.editor.document import Document
from rewardspec.editor.fixes import fixes
from rewardspec.editor.hover import hover
from rewardspec.editor.later import Unfinished, findings_within
from rewardspec.editor.layout import format_edits
from rewardspec.editor.messages import Converter
from rewardspec.editor.positions import UTF16
from rewardspec.editor.refer import CannotRename, definition, references, rename, renamed_at
from rewardspec.editor.symbols import symbols
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.source import Source

PAUSE = 0.15  # seconds without a change before errors are looked for
LATER = 0.5  # and before findings are
TRIGGERS = [" ", ":", "(", ",", "=", ".", "{", "["]
REQUEST_FAILED = -32803

Answer = TypeVar("Answer")


class SpecServer(LanguageServer):
    """The state of a session. seconds: the most that findings about one version may take; 0 for none.

    Documents come whole with each change: a spec is at most 64 KiB, and so the editor and the server cannot differ
    over what ends a line.
    """

    def __init__(self, seconds: float = 10):
        super().__init__("rewardspec", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.seconds = seconds
        self.versions: dict[str, tuple[int | None, Document]] = {}
        self.found: dict[str, tuple[Document, list[Diagnostic]]] = {}  # findings of the version that they are about
        self.shown: dict[str, bool] = {}  # whether the editor has errors of ours on display
        self.passes: dict[str, asyncio.Task[None]] = {}
        self.one_by_one = asyncio.Semaphore(1)
        self.worker = ThreadPoolExecutor(1)  # what reads a whole spec runs here, so that typing goes on

    def document(self, uri: str) -> Document:
        """The current version of a document."""
        held = self.workspace.get_text_document(uri)
        known = self.versions.get(uri)
        if known is None or known[0] != held.version or held.version is None:
            known = self.versions[uri] = held.version, Document(held.source, name_of(uri))
        return known[1]

    def converter(self, uri: str) -> Converter:
        return Converter(uri, self.document(uri), str(self.encoding))

    @property
    def encoding(self) -> str:
        chosen = self.workspace.position_encoding
        return UTF16 if chosen is None else str(getattr(chosen, "value", chosen))

    async def aside(self, work: Callable[[], Answer]) -> Answer:
        """The result of `work`, which runs beside the conversation with the editor."""
        return await asyncio.get_running_loop().run_in_executor(self.worker, work)

    def folders(self, uri: str) -> list[Path]:
        """Where the functions of the user are looked for: beside the spec, and in the folders of the editor."""
        found = [to_fs_path(uri), *(to_fs_path(folder) for folder in self.workspace.folders)]
        first = [Path(found[0]).parent] if found[0] else []
        return [*first, *(Path(path) for path in found[1:] if path)]

    # Diagnostics ---------------------------------------------------------------------------------

    def changed(self, uri: str) -> None:
        """Begin the passes for a new version; those for the last one end."""
        self.stop(uri)
        task = self.passes[uri] = asyncio.get_running_loop().create_task(self.look(uri))
        task.add_done_callback(_log_failure)

    def stop(self, uri: str) -> None:
        task = self.passes.pop(uri, None)
        if task is not None:
            task.cancel()

    async def look(self, uri: str) -> None:
        """Both passes over one version of a document."""
        await asyncio.sleep(PAUSE)
        to = self.converter(uri)
        document = to.document
        if not document.is_spec:
            self.publish(to, [])
            return
        spec, errors = await self.aside(lambda: document.checked)
        if spec is None or self.shown.get(uri) or self.seconds <= 0:  # else the last findings stay until the next come
            self.publish(to, errors)
        if spec is None or self.seconds <= 0:
            return
        await asyncio.sleep(LATER)
        async with self.one_by_one:
            try:
                found = await findings_within(document.source, self.seconds)
            except Unfinished as error:
                found = [_not_checked(document.source, str(error))]
        self.found[uri] = document, found
        self.publish(to, [*errors, *found])

    def publish(self, to: Converter, found: list[Diagnostic]) -> None:
        held = self.versions.get(to.uri)
        version = held[0] if held is not None and held[1] is to.document else None
        self.shown[to.uri] = any(one.severity == "error" for one in found)
        shown = [to.diagnostic(one) for one in found]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(to.uri, shown, version))

    def close(self, uri: str) -> None:
        """Forget a document that the editor has closed."""
        self.stop(uri)
        for known in (self.versions, self.found, self.shown):
            known.pop(uri, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))


def _not_checked(source: Source, reason: str) -> Diagnostic:
    return Diagnostic("not-checked", f"findings ({reason})", source.span(0, min(1, len(source.text))), severity="note")


def _log_failure(task: asyncio.Task[None]) -> None:
    """A fault of ours, for the editor's log: nobody awaits the passes."""
    if not task.cancelled() and task.exception() is not None:
        logging.getLogger(__name__).error("a pass failed", exc_info=task.exception())


def name_of(uri: str) -> str:
    """The name of a document in messages."""
    return to_fs_path(uri) or unquote(uri.rpartition("/")[2]) or "<spec>"


def make_server(seconds: float = 10) -> SpecServer:
    """A server with all that it answers. seconds: the most that findings may take; 0 for none."""
    server = SpecServer(seconds)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(ls: SpecServer, params: types.DidOpenTextDocumentParams) -> None:
        ls.changed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(ls: SpecServer, params: types.DidChangeTextDocumentParams) -> None:
        ls.changed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: SpecServer, params: types.DidCloseTextDocumentParams) -> None:
        ls.close(params.text_document.uri)

    @server.feature(types.SHUTDOWN)
    def ended(ls: SpecServer, _: None) -> None:
        for uri in list(ls.passes):
            ls.stop(uri)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=TRIGGERS))
    def complete(ls: SpecServer, params: types.CompletionParams) -> types.CompletionList:
        to = ls.converter(params.text_document.uri)
        at = to.offset(params.position)
        items = completions(to.document, at)
        first = fitting(items, to.document.text[:at])
        shown = [to.completion(item, i, at) for i, item in enumerate(first)]
        return types.CompletionList(len(first) < len(items), shown)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hovered(ls: SpecServer, params: types.HoverParams) -> types.Hover | None:
        to = ls.converter(params.text_document.uri)
        if not to.document.is_spec:
            return None
        found = await ls.aside(lambda: hover(to.document, to.offset(params.position)))
        return None if found is None else to.hover(found)

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    async def defined(ls: SpecServer, params: types.DefinitionParams) -> types.Location | None:
        to, folders = ls.converter(params.text_document.uri), ls.folders(params.text_document.uri)
        if not to.document.is_spec:
            return None
        found = await ls.aside(lambda: definition(to.document, to.offset(params.position), folders))
        return None if found is None else to.location(found)

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def referred(ls: SpecServer, params: types.ReferenceParams) -> list[types.Location]:
        to = ls.converter(params.text_document.uri)
        found = references(to.document, to.offset(params.position)) if to.document.is_spec else []
        kept = [one for one in found if params.context.include_declaration or not one.declares]
        return [types.Location(to.uri, to.range(one.start, one.end)) for one in kept]

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    def highlighted(ls: SpecServer, params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
        to = ls.converter(params.text_document.uri)
        found = references(to.document, to.offset(params.position)) if to.document.is_spec else []
        return [types.DocumentHighlight(to.range(one.start, one.end)) for one in found]

    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepared(ls: SpecServer, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder:
        to = ls.converter(params.text_document.uri)
        with _refused():
            found = renamed_at(to.document, to.offset(params.position))
        return types.PrepareRenamePlaceholder(to.range(found.start, found.end), found.symbol.name)

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    async def renamed(ls: SpecServer, params: types.RenameParams) -> types.WorkspaceEdit:
        to = ls.converter(params.text_document.uri)
        with _refused():
            places = await ls.aside(lambda: rename(to.document, to.offset(params.position), params.new_name))
        return to.change([(start, end, params.new_name) for start, end in places])

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
    )
    async def acted(ls: SpecServer, params: types.CodeActionParams) -> list[types.CodeAction]:
        wanted = params.context.only
        if wanted is not None and not {types.CodeActionKind.QuickFix.value, ""} & {str(w) for w in wanted}:
            return []
        to = ls.converter(params.text_document.uri)
        if not to.document.is_spec:
            return []
        about, found = ls.found.get(to.uri, (None, []))
        first, last = to.offset(params.range.start), to.offset(params.range.end)

        def work() -> list[types.CodeAction]:
            known = [*to.document.checked[1], *(found if about is to.document else [])]
            near = [one for one in known if one.span.start <= last and first <= one.span.end]
            return [to.fix(fix, one) for one in near for fix in fixes(to.document, one)]

        return await ls.aside(work)

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    async def laid_out(ls: SpecServer, params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        to = ls.converter(params.text_document.uri)
        if not to.document.is_spec:
            return None  # another server may format it
        return to.edits(await ls.aside(lambda: format_edits(to.document)))

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def listed(ls: SpecServer, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        to = ls.converter(params.text_document.uri)
        return to.symbols(symbols(to.document)) if to.document.is_spec else []

    return server


@contextmanager
def _refused() -> Iterator[None]:
    """Turns the reason why a name cannot be changed into the error that editors show."""
    try:
        yield
    except CannotRename as error:
        raise JsonRpcException(str(error), REQUEST_FAILED) from error


def serve(seconds: float = 10) -> None:
    """Answer an editor over standard input and output, until it ends the session."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once: a thread waits for input
    threading.stack_size(64 * 2**20)  # of the thread that reads specs, which recurses along graphs
    make_server(seconds).start_io()
