"""Connected components, against a search from every node."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.dedupe.clusters import Forest, components, find_root, join_trees


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_a_node_is_labelled_by_the_smallest_it_reaches(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = graph
    reached = [{node} for node in range(count)]
    for _ in range(count):
        for first, second in pairs:
            reached[first] |= reached[second]
            reached[second] |= reached[first]
    found = components(count, np.array(pairs, np.int64).reshape(-1, 2))
    assert found.tolist() == [min(nodes) for nodes in reached]


def test_a_long_chain_is_one_component() -> None:
    order = np.random.default_rng(0).permutation(100_000)
    assert not components(len(order), np.stack([order[:-1], order[1:]], axis=1)).any()


@given(st.lists(st.tuples(*[st.integers(0, 25)] * 2)), st.integers(0, 5))
def test_forests_of_parts_merge_into_the_components(pairs: list[tuple[int, int]], parts: int) -> None:
    merged: Forest = {}
    for part in range(parts + 1):
        forest: Forest = {}
        for first, second in pairs[part :: parts + 1]:
            join_trees(forest, chr(97 + first), chr(97 + second))
        for node, parent in forest.items():
            join_trees(merged, node, parent)
    expected = components(26, np.array(pairs, np.int64).reshape(-1, 2)).tolist()
    nodes = sorted({node for pair in pairs for node in pair})
    assert {node: find_root(merged, chr(97 + node)) for node in nodes} == {n: chr(97 + expected[n]) for n in nodes}
