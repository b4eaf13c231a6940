"""`python -m rewardspec.quoting`, as scripts of version 0.1 call it: see `rewardspec.text.quoting`."""

from rewardspec.text.quoting import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
