"""z-scores of turns, in NumPy."""

import numpy as np


def zscore(values, groups):
    """In NumPy, of the present values of each group."""
    values, found = np.array(values, dtype=float), np.zeros(len(values))
    for group in set(groups):
        at = [i for i in range(len(values)) if groups[i] == group and not np.isnan(values[i])]
        spread = values[at].std(ddof=1) if len(at) > 1 else 0
        if spread > 0:
            found[at] = (values[at] - values[at].mean()) / (spread + 1e-6)
    return found
