"""The HTTP client of a judge, installed with `rewardspec[rewards]`."""

from __future__ import annotations

from types import ModuleType


def client_library() -> ModuleType:
    """httpx. Raises ModuleNotFoundError, which names the package to install."""
    try:
        import httpx
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a judge needs httpx: pip install 'rewardspec[rewards]'") from None
    return httpx
