"""HTML tables for notebooks. All text in them is escaped."""

from __future__ import annotations

from collections.abc import Sequence

from rewardspec.text.shown import shown


def html_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> str:
    """A table with a title and a note below it, as HTML.

    html_table("r", ["a"], [["<b>"]]) contains `&lt;b&gt;`.
    """
    head = "".join(f"<th>{_text(cell)}</th>" for cell in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    below = f"<div>{_text(note)}</div>" if note else ""
    return f"<div><b>{_text(title)}</b><table><tr>{head}</tr>{body}</table>{below}</div>"


def _text(cell: object) -> str:
    from html import escape  # its table of names is for notebooks alone

    return escape(shown(cell))
