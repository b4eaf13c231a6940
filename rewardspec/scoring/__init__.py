"""Reward functions over files of rollouts."""
