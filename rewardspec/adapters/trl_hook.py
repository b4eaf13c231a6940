"""`rewardspec.adapters.trl_hook.spec`, which stands for the spec in TRL's configurations: see `adapters.trl.hook`."""

from rewardspec.adapters.trl.hook import spec

__all__ = ["spec"]
