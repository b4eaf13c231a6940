"""The older name of `rewardspec.rewards.code.sandbox`."""

from rewardspec.rewards.code.sandbox import Protections, SandboxError, protections

__all__ = ["Protections", "SandboxError", "protections"]
