"""`rewardspec schema`: the JSON Schema of specs, for editors."""

from __future__ import annotations

from rewardspec.cli.printing.lines import say_json
from rewardspec.language.editor import json_schema
from rewardspec.lint import registered


def command() -> None:
    """Print the JSON Schema of specs, for editors: `# yaml-language-server: $schema=spec.schema.json`.

    rewardspec schema > spec.schema.json
    """
    about = {code: finding.title for code, finding in registered().items()}
    say_json(json_schema(about, {code for code, finding in registered().items() if finding.of_spec}))
