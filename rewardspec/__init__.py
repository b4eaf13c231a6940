"""Reward specs: read, checked, compiled to one torch advantage function.

spec = rewardspec.load("specs/gdpo/math.yaml")
fn = rewardspec.compile(spec)
out = fn({"correct": c, "tokens": t}, groups=16)
out.advantages
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rewardspec._version import __version__

if TYPE_CHECKING:
    from rewardspec import adapters, rewards
    from rewardspec.api import check, compile, diff, load, loads, replay, report, score, simulate, verify
    from rewardspec.emit.runtime.columns import RolloutError
    from rewardspec.function import AdvantageFunction, Result
    from rewardspec.pages.report import SpecReport
    from rewardspec.prove.counterexample import Counterexample
    from rewardspec.prove.diff import Difference
    from rewardspec.prove.diff_on_log import LogDifference
    from rewardspec.prove.replay import Replay
    from rewardspec.prove.simulate import Simulation
    from rewardspec.prove.verify import Verdict
    from rewardspec.runs.replay import RunReplay
    from rewardspec.scoring.score import Summary
    from rewardspec.spec import Spec
    from rewardspec.text.diagnostics import Diagnostic, SpecError

_HOMES = {  # imported when they are asked for: reading a spec needs little of them
    "AdvantageFunction": "function",
    "Counterexample": "prove.counterexample",
    "Diagnostic": "text.diagnostics",
    "Difference": "prove.diff",
    "LogDifference": "prove.diff_on_log",
    "Replay": "prove.replay",
    "Result": "function",
    "RolloutError": "emit.runtime.columns",
    "RunReplay": "runs.replay",
    "Simulation": "prove.simulate",
    "Spec": "spec",
    "SpecError": "text.diagnostics",
    "SpecReport": "pages.report",
    "Summary": "scoring.score",
    "Verdict": "prove.verify",
    "check": "api",
    "compile": "spec",
    "diff": "api",
    "load": "spec",
    "loads": "spec",
    "replay": "api",
    "report": "api",
    "score": "api",
    "simulate": "api",
    "verify": "api",
}

__all__ = [
    "AdvantageFunction",
    "Counterexample",
    "Diagnostic",
    "Difference",
    "LogDifference",
    "Replay",
    "Result",
    "RolloutError",
    "RunReplay",
    "Simulation",
    "Spec",
    "SpecError",
    "SpecReport",
    "Summary",
    "Verdict",
    "__version__",
    "adapters",
    "check",
    "compile",
    "diff",
    "load",
    "loads",
    "replay",
    "report",
    "rewards",
    "score",
    "simulate",
    "verify",
]


def __getattr__(name: str) -> object:
    if name in ("adapters", "rewards"):
        return import_module(f"rewardspec.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'rewardspec' has no attribute {name!r}")
    found: object = getattr(import_module(f"rewardspec.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
