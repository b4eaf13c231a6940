"""`python -m rewardspec.adapters.openrlhf`."""

from rewardspec.adapters.openrlhf.launcher import main

main()
