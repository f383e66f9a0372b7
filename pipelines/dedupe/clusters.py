"""Clusters: the connected components of "looks like", found from the pairs alone.

Two images of one cluster need not be within the radius of each other: a chain of near-duplicates is one cluster.
`components` takes all pairs at once; a forest (`join_trees`) takes them one by one, and forests of parts of the pairs
are merged: it holds a node of every pair, but never the pairs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Forest = dict[str, str]  # node -> a smaller node of its component, or itself: the smallest


def components(count: int, pairs: Indices) -> Indices:
    """Return for each of `count` nodes the smallest node of its connected component.

    Each round hangs every root that has a smaller neighbour under it, then shortens all paths: the number of roots of
    an unfinished component at least halves, so there are at most log2(count) rounds.

    Args:
        count: nodes are 0..count - 1.
        pairs: P x 2 nodes that belong together.
    """
    parent = np.arange(count, dtype=np.int64)
    while True:
        first, second = parent[pairs[:, 0]], parent[pairs[:, 1]]
        if np.array_equal(first, second):
            return parent
        np.minimum.at(parent, np.maximum(first, second), np.minimum(first, second))
        parent = _flatten(parent)


def join_trees(forest: Forest, first: str, second: str) -> None:
    """Note in a forest that two nodes belong together."""
    roots = find_root(forest, first), find_root(forest, second)
    forest[max(roots)] = min(roots)


def find_root(forest: Forest, node: str) -> str:
    """Return the smallest node known to belong with `node`, and halve the path to it."""
    forest.setdefault(node, node)
    while forest[node] != node:
        forest[node] = forest[forest[node]]
        node = forest[node]
    return node


def _flatten(parent: Indices) -> Indices:
    while True:
        shorter = parent[parent]
        if np.array_equal(shorter, parent):
            return parent
        parent = shorter
