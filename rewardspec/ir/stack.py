"""Room on Python's stack for passes that recurse along a graph."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rewardspec.ir.graph import DEEPEST_NODE


@contextmanager
def deep_stack() -> Iterator[None]:
    """Room for passes that recurse along a graph, whose depth is bounded (`ir.graph.DEEPEST_NODE`).

    All threads share the limit: the first to enter raises it, and the last to leave restores it.
    """
    global _inside, _before
    with _counting:
        if not _inside:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, 20 * DEEPEST_NODE))
        _inside += 1
    try:
        yield
    finally:
        with _counting:
            _inside -= 1
            if not _inside:
                sys.setrecursionlimit(_before)


_counting, _inside, _before = threading.Lock(), 0, 0
