"""`rewardspec.adapters.trl_hook.spec`, the placeholder of a spec in TRL's configurations: see `adapters.trl.hook`."""

from rewardspec.adapters.trl.hook import spec

__all__ = ["spec"]
