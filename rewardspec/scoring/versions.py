"""The identity of a run of reward functions: rewards of two versions of a function must not be mixed."""

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
    """For each column its function, options, and a hash of the source code if there is one.

    A user function changes with its file; modules that the file imports do not count. A judge changes with the endpoint
    in the environment.
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
    """A hash of our reward functions, all together because they share code, and of the scorer."""
    files = [Path(__file__).with_name("scorer.py"), *sorted(Path(rewards.__file__).parent.rglob("*.py"))]
    return _digest(b"".join(path.read_bytes() for path in files))


def _of_file(function: Callable[..., Any]) -> str:
    """A hash of the file of a function; the version of its module if it has no file."""
    home = inspect.unwrap(function) if hasattr(function, "__wrapped__") else function
    kind = home if hasattr(home, "__code__") else getattr(home, "__func__", type(home))
    try:
        return _digest(Path(inspect.getsourcefile(kind) or "").read_bytes())
    except (TypeError, OSError):
        module = import_module((getattr(home, "__module__", None) or "builtins").partition(".")[0])
        return str(getattr(module, "__version__", "no source"))
