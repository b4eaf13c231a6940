"""Groups of rollouts: which groups a spec allows, how likely they are, and the parts of their advantage."""
