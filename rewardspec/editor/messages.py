"""What the functions of this package return, in the types of the Language Server Protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from lsprotocol import types

from rewardspec.editor import completion, fixes, hover, refer, symbols
from rewardspec.editor.document import Document
from rewardspec.editor.positions import UTF16, offset, position
from rewardspec.lint import registered
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.source import Source

_SEVERITY = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}
_COMPLETION = {
    "key": types.CompletionItemKind.Property,
    "option": types.CompletionItemKind.Property,
    "word": types.CompletionItemKind.EnumMember,
    "token": types.CompletionItemKind.EnumMember,
    "axis": types.CompletionItemKind.EnumMember,
    "keyword": types.CompletionItemKind.Keyword,
    "scheme": types.CompletionItemKind.Class,
    "definition": types.CompletionItemKind.Constant,
    "given": types.CompletionItemKind.Constant,
    "function": types.CompletionItemKind.Function,
    "reward": types.CompletionItemKind.Module,
    "finding": types.CompletionItemKind.Event,
}
_SYMBOL = {
    "section": types.SymbolKind.Namespace,
    "value": types.SymbolKind.Property,
    "signal": types.SymbolKind.Variable,
    "component": types.SymbolKind.Field,
    "state": types.SymbolKind.Variable,
    "list": types.SymbolKind.Array,
    "definition": types.SymbolKind.Constant,
    "function": types.SymbolKind.Function,
    "guarantee": types.SymbolKind.Boolean,
    "finding": types.SymbolKind.Event,
}


class Converter:
    """Offsets of a document as positions in the encoding that the editor and the server agreed on."""

    def __init__(self, uri: str, document: Document, encoding: str = UTF16):
        self.uri, self.document, self.encoding = uri, document, encoding

    def offset(self, place: types.Position) -> int:
        return offset(self.document.source, place.line, place.character, self.encoding)

    def range(self, start: int, end: int, source: Source | None = None) -> types.Range:
        source = source or self.document.source
        first, last = (types.Position(*position(source, at, self.encoding)) for at in (start, max(start, end)))
        return types.Range(first, last)

    def diagnostic(self, one: Diagnostic) -> types.Diagnostic:
        """With the help below the message, and the labels as further places."""
        message = one.message + (f" ({one.note})" if one.note else "") + (f"\nhelp: {one.help}" if one.help else "")
        own = [label for label in one.labels if label.span.source is one.span.source]
        related = [
            types.DiagnosticRelatedInformation(
                types.Location(self.uri, self.range(label.span.start, label.span.end)), label.message
            )
            for label in own
        ]
        page = _page(one.code)
        return types.Diagnostic(
            range=self.range(one.span.start, one.span.end),
            message=message if one.severity != "note" else f"not checked: {one.message}",
            severity=_SEVERITY[one.severity],
            code=one.code,
            code_description=types.CodeDescription(page) if page is not None else None,
            source="rewardspec",
            related_information=related or None,
        )

    def edits(self, edits: Iterable[fixes.Edit]) -> list[types.TextEdit]:
        line_break = self.document.line_break
        return [types.TextEdit(self.range(start, end), text.replace("\n", line_break)) for start, end, text in edits]

    def change(self, edits: Iterable[fixes.Edit]) -> types.WorkspaceEdit:
        return types.WorkspaceEdit(changes={self.uri: self.edits(edits)})

    def fix(self, one: fixes.Fix, mended: Diagnostic) -> types.CodeAction:
        return types.CodeAction(
            title=one.title,
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[self.diagnostic(mended)],
            is_preferred=one.is_usual or None,
            edit=self.change(one.edits),
        )

    def completion(self, item: completion.Item, rank: int, at: int) -> types.CompletionItem:
        """The item that is `rank`-th in the list; the cursor is at `at`."""
        return types.CompletionItem(
            label=item.label,
            kind=_COMPLETION.get(item.kind, types.CompletionItemKind.Variable),
            detail=item.detail or None,
            documentation=_markdown(item.about) if item.about else None,
            sort_text=f"{rank:04}",
            filter_text=item.label,
            insert_text_mode=types.InsertTextMode.AsIs,
            text_edit=types.TextEdit(self.range(item.start, at), item.insert),
        )

    def hover(self, one: hover.Hover) -> types.Hover:
        return types.Hover(_markdown(one.markdown), self.range(one.start, one.end))

    def location(self, target: refer.Target) -> types.Location:
        uri = self.uri if target.path is None else target.path.resolve().as_uri()
        return types.Location(uri, self.range(target.start, target.end, target.source))

    def symbols(self, items: Sequence[symbols.Item]) -> list[types.DocumentSymbol]:
        return [
            types.DocumentSymbol(
                name=item.name,
                kind=_SYMBOL[item.kind],
                range=self.range(item.start, max(item.end, item.key[1])),
                selection_range=self.range(*item.key),
                detail=item.detail or None,
                children=self.symbols(item.items) or None,
            )
            for item in items
        ]


def _markdown(text: str) -> types.MarkupContent:
    return types.MarkupContent(types.MarkupKind.Markdown, text)


def _page(code: str) -> str | None:
    """The file whose first lines are the page of a finding."""
    code_of = getattr(registered()[code].look, "__code__", None) if code in registered() else None
    return None if code_of is None else Path(code_of.co_filename).resolve().as_uri()
