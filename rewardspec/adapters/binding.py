"""The older name of `rewardspec.adapters.common.binding`."""

from rewardspec.adapters.common.binding import BindingError, check_rewards, read_spec

__all__ = ["BindingError", "check_rewards", "read_spec"]
