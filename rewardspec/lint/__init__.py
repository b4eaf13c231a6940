"""Findings: likely mistakes in a spec that can be computed.

    found = findings(spec, Run(sizes=[8]))
    for diagnostic in found.warnings: ...

A finding is one file in `rules/`. Its docstring is the page that `rewardspec explain CODE` shows.
"""

from rewardspec.lint.check import Findings, findings
from rewardspec.lint.facts import Run
from rewardspec.lint.pages import codes, page
from rewardspec.lint.registry import Finding, registered

__all__ = ["Finding", "Findings", "Run", "codes", "findings", "page", "registered"]
