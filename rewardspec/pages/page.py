"""One HTML file that needs nothing else: style, scripts and data stand in it, and a policy that allows no more.

The data are JSON in the file. All that is shown is made from them in the browser, by the files of `browser/`, where
every text goes through one function and none is ever read as HTML.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

from rewardspec.logs.files import log_files
from rewardspec.logs.outputs import BadPath, is_same, replace
from rewardspec.logs.rows import BadLog
from rewardspec.text.shown import shown

HERE = Path(__file__).parent / "browser"
SCRIPTS = ("text", "words", "theme", "table", "chart", "groups", "replay", "report", "main")  # in this order
LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")  # what of Bokeh draws the charts

MISSING = "a page needs Bokeh: pip install 'rewardspec[pages]'"


class NoLibrary(ValueError):
    """The library that draws is not installed. The message says what to install."""


def page(title: str, data: Mapping[str, Any]) -> str:
    """The page of some data, as HTML. Raises NoLibrary.

    data: plain values for `browser/main.js`; `kind` says which page they are for.
    """
    scripts = [*library(), "(() => {\n'use strict';\n" + "\n".join(_own(f"{name}.js") for name in SCRIPTS) + "\n})();"]
    scripts = [_inline(script) for script in scripts]
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    # Bokeh styles its canvases from script, so styles cannot be named by hash; nothing of the data becomes one
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(shown(title))}</title>",
            f"<style>\n{_own('style.css')}</style>",
            "</head>",
            "<body>",
            "<noscript>This page is drawn by the script inside it: allow scripts for this file.</noscript>",
            f'<script type="application/json" id="data">{embedded(data)}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            "</body>",
            "</html>",
            "",
        ]
    )


def check_page(output: Path, reads: Sequence[Path] = ()) -> None:
    """Raises BadPath if a page cannot be written there, or would overwrite what is read, and NoLibrary."""
    library()
    if output.is_dir():
        raise BadPath(f"{shown(output)} is a folder: name a file in it")
    if output.exists() and not output.is_file():
        raise BadPath(f"{shown(output)} is not a regular file")
    if not output.absolute().parent.is_dir():
        raise BadPath(f"there is no folder {shown(output.absolute().parent)} to write {shown(output.name)} into")
    for path in reads:
        if is_same(path, output) or (output.exists() and path.is_dir() and _is_log_of(output, path)):
            raise BadPath(f"{shown(output)} is read and would be overwritten")


def _is_log_of(output: Path, folder: Path) -> bool:
    """Whether an output that exists is a file of the log in a folder."""
    try:
        return any(is_same(path, output) for path in log_files([folder])[0])
    except BadLog:  # the run is not read either
        return False


def write_page(output: Path, text: str) -> None:
    """Write a page, whole or not at all; of a link the file that it leads to. Raises OSError."""
    replace(Path(os.path.realpath(output)), lambda path: _write(path, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element: ASCII, without `<`, `>` and `&`. JSON has no NaN: it is null there."""
    text = json.dumps(_finite(data), allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def library() -> list[str]:
    """The scripts of Bokeh. Raises NoLibrary. Bokeh itself is not imported."""
    found = find_spec("bokeh")
    if found is None or found.origin is None:
        raise NoLibrary(MISSING)
    static = Path(found.origin).parent / "server" / "static" / "js"
    try:
        return [(static / name).read_text(encoding="utf-8") for name in LIBRARY]
    except OSError:
        raise NoLibrary(f"{MISSING}; the one in {static} lacks {' or '.join(LIBRARY)}") from None


def _own(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _inline(script: str) -> str:
    """A script that can stand in a page: nothing in it ends its element, or begins a comment of HTML."""
    script = script.replace("\r\n", "\n").replace("\r", "\n")  # as the parser of HTML does, before it is hashed
    return re.sub(r"<(?=/script|!--)", r"\\x3c", script, flags=re.IGNORECASE)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None if value != value else "inf" if value > 0 else "-inf"
    return value
