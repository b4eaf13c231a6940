"""The text of a spec file or of a published spec, within limits."""

from __future__ import annotations

from os import PathLike

from rewardspec.language.published import located, nearest_published
from rewardspec.syntax.yaml import LARGEST_FILE
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source

MOST_BYTES = LARGEST_FILE * 4


def read_file(path: str | PathLike[str]) -> tuple[Source | None, Report]:
    """The text of a file, or of the published spec of this name; None if it is too large or not UTF-8.

    Raises OSError, with a note if a published spec has a similar name.
    """
    found = located(path)
    try:
        with open(found.path, "rb") as file:
            return read_bytes(file.read(MOST_BYTES + 1), found.name)
    except FileNotFoundError as error:
        near = nearest_published(found.name)
        if near is not None:
            error.add_note(near)
        raise


def read_bytes(data: bytes, name: str) -> tuple[Source | None, Report]:
    """The text of a file's bytes; None if they are more than `MOST_BYTES` or not UTF-8."""
    report = Report()
    if len(data) > MOST_BYTES:
        report.error("too-large", f"the spec is larger than {LARGEST_FILE // 1024} KiB", Source(name, "").span(0, 0))
        return None, report
    try:
        return Source(name, data.decode("utf-8-sig").replace("\r\n", "\n")), report
    except UnicodeDecodeError as error:
        before = Source(name, data[: error.start].decode("utf-8", "replace"))
        at = len(before.text)
        report.error("encoding", "the file is not UTF-8 text", before.span(at, at), help="save it as UTF-8")
        return None, report
