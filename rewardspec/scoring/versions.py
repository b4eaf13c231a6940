"""What tells apart two runs of reward functions: values of unlike functions do not go together."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rewardspec import rewards
from rewardspec._version import __version__
from rewardspec.scoring.scorer import Scorer


def versions(scorer: Scorer) -> dict[str, str]:
    """By column, the function that measures it, its options, and a digest of its source where that can be had.

    A function of the user's changes with the file that it is in; what this imports is not looked at. A judge changes
    with the endpoint that the environment names.
    """
    found = {}
    for name, use in scorer.uses.items():
        code = _of_file(scorer.own[name]) if name in scorer.own else f"rewardspec {__version__} {_of_ours()}"
        found[name] = f"{use} [{code}]"
        if use.reward is not None and use.reward.name.startswith("judge.") and not use.options.get("url"):
            found[name] += f" at {_digest(os.environ.get('OPENAI_BASE_URL', '').encode())}"
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


@cache
def _of_ours() -> str:
    """Of all our reward functions, which share what they are made of, and of what calls them."""
    files = [Path(__file__).with_name("scorer.py"), *sorted(Path(rewards.__file__).parent.rglob("*.py"))]
    return _digest(b"".join(path.read_bytes() for path in files))


def _of_file(function: Callable[..., Any]) -> str:
    """Of the file of a function; the version of its module where there is none."""
    home = inspect.unwrap(function) if hasattr(function, "__wrapped__") else function
    kind = home if hasattr(home, "__code__") else getattr(home, "__func__", type(home))
    try:
        return _digest(Path(inspect.getsourcefile(kind) or "").read_bytes())
    except (TypeError, OSError):
        module = import_module((getattr(home, "__module__", None) or "builtins").partition(".")[0])
        return str(getattr(module, "__version__", "no source"))
