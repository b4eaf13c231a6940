"""The HTTP client of a judge, which is installed with `rewardspec[rewards]`."""

from __future__ import annotations

from types import ModuleType


def client_library() -> ModuleType:
    """httpx. Raises ModuleNotFoundError, with the way out."""
    try:
        import httpx
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a judge is asked through httpx: pip install 'rewardspec[rewards]'") from None
    return httpx
