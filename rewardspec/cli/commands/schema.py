"""`rewardspec schema`: what editors complete and check."""

from __future__ import annotations

from rewardspec.cli.printing.lines import say_json
from rewardspec.language.editor import json_schema
from rewardspec.lint.finding import OF_SPEC, findings


def command() -> None:
    """Print the JSON Schema of specs, for editors: `# yaml-language-server: $schema=spec.schema.json`."""
    about = {code: finding.page.split("\n")[0] for code, finding in findings().items()}
    say_json(json_schema(about, OF_SPEC))
