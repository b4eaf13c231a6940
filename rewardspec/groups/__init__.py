"""Groups of rollouts: which there are, and what their parts are worth."""
