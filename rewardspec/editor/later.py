"""The findings about a text, from a process of its own that ends in time: they can take long, and typing cannot wait.

    python -P -m rewardspec.editor.later 10 < request.json

The request is `{"text": ..., "name": ...}`, the answer the diagnostics of `answer`. The process ends itself after so
many seconds, with status `OUT_OF_TIME`, also if the editor is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from rewardspec.lint import findings
from rewardspec.spec import check
from rewardspec.text.diagnostics import Diagnostic, Label
from rewardspec.text.source import Source

OUT_OF_TIME = 3


def answer(text: str, name: str) -> list[dict[str, Any]]:
    """The findings about a spec without errors, and notes on what was not checked, as plain JSON."""
    spec, _ = check(Source(name, text))
    if spec is None:
        return []
    found = findings(spec)
    return [_plain(one) for one in (*found.warnings, *found.notes)]


def _plain(one: Diagnostic) -> dict[str, Any]:
    labels = [[label.span.start, label.span.end, label.message] for label in one.labels if _is_own(label, one)]
    place = {"start": one.span.start, "end": one.span.end, "labels": labels}
    return {
        **place,
        "code": one.code,
        "message": one.message,
        "help": one.help,
        "note": one.note,
        "severity": one.severity,
    }


def _is_own(label: Label, one: Diagnostic) -> bool:
    return label.span.source is one.span.source


def read(plain: Mapping[str, Any], source: Source) -> Diagnostic:
    """A diagnostic of `answer` again."""
    labels = tuple(Label(source.span(start, end), message) for start, end, message in plain["labels"])
    span = source.span(plain["start"], plain["end"])
    return Diagnostic(plain["code"], plain["message"], span, plain["help"], labels, plain["note"], plain["severity"])


class Unfinished(Exception):
    """The findings are not known. The message has the reason."""


async def findings_within(source: Source, seconds: float) -> list[Diagnostic]:
    """The findings about a source. The process ends if this is cancelled. Raises Unfinished."""
    process = await asyncio.create_subprocess_exec(
        # -P: no module is taken from the folder that the editor was started in, which has the user's files
        *(sys.executable, "-P", "-m", "rewardspec.editor.later", str(seconds)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    request = json.dumps({"text": source.text, "name": source.name}).encode()
    try:
        out, _ = await process.communicate(request)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == OUT_OF_TIME:
        raise Unfinished(f"they take over {seconds:g} seconds; `rewardspec check` has no limit")
    if process.returncode != 0:
        raise Unfinished(f"their process ended with status {process.returncode}; `rewardspec check` shows why")
    return [read(one, source) for one in json.loads(out)]


def _main() -> None:
    limit = threading.Timer(float(sys.argv[1]), os._exit, (OUT_OF_TIME,))
    limit.daemon = True
    limit.start()
    request = json.load(sys.stdin)
    sys.stdout.write(json.dumps(answer(request["text"], request["name"])))


if __name__ == "__main__":
    _main()
