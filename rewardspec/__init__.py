"""Reward specs: read, checked, compiled to one torch advantage function.

spec = rewardspec.load("specs/gdpo/math.yaml")
fn = rewardspec.compile(spec)
out = fn({"correct": c, "tokens": t}, groups=16)
out.advantages
"""

from rewardspec._version import __version__
from rewardspec.spec import Spec, compile, load, loads
from rewardspec.text.diagnostics import Diagnostic, SpecError

__all__ = ["Diagnostic", "Spec", "SpecError", "__version__", "compile", "load", "loads"]
