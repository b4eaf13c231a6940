"""Finds the files that ship beside the code: `grammar/` and `specs/`."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def resource(relative: str) -> Path:
    """Path of a shipped file or folder: inside the package (wheel) or beside it (checkout)."""
    for root in (_PACKAGE, _PACKAGE.parent):
        if (root / relative).exists():
            return root / relative
    raise FileNotFoundError(f"rewardspec was installed without {relative}")
