"""The reward functions of a spec, run over rollouts and files of them."""
