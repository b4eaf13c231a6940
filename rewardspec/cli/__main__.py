"""`python -m rewardspec.cli`, the same as `rewardspec`."""

from rewardspec.cli import main

if __name__ == "__main__":
    main()
