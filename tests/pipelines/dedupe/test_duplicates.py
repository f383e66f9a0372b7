"""Which occurrences are duplicates, of what, and which documents go: against a comparison of all with all."""

import random
import tracemalloc
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import combinations, groupby

import apache_beam as beam
import numpy as np
import pytest
from all_with_all import bits_apart, going, hashed, settled
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.dedupe.duplicates import (
    Clusters,
    Codes,
    Neighbours,
    Occurrences,
    count_duplicates,
    cut_crowded,
    duplicate_rows,
    find_duplicates,
    find_neighbours,
    join,
    keyed_codes,
    mark_dropped,
    merge_clusters,
    near_codes,
    pack_images,
)
from pipelines.dedupe.transforms import FindDuplicates, by_hash
from pipelines.documents.rules import SettledDocument
from pipelines.launch import run_pipeline
from pipelines.partitions.columns import from_hex
from pipelines.partitions.transforms import ROWS_PER_PARTITION
from pipelines.settings import Policy, Runner
from schemas.documents import Image
from schemas.duplicates import Duplicate

PLAIN, NEAR, FAR = "00000000000000ff", "00000000000001ff", "ffffffffffffffff"
ONE_BY_ONE, CROWDED = {"rows": 1}, {"rows": 20, "crowded": 4}


def documents(*entries: str, **fingerprints: str) -> list[SettledDocument]:
    """Return documents written `document:image,image`; images without a given fingerprint have no pixels."""
    found = []
    for entry in entries:
        document, _, names = entry.partition(":")
        images = [Image(hashed(name), fingerprint=fingerprints.get(name)) for name in names.split(",")]
        found.append(settled(document, images))
    return found


def plain(given: Iterable[SettledDocument], *, radius: int, policy: Policy = Policy.DROP_DOCUMENTS) -> list[Duplicate]:
    """Return what the steps give in one partition."""
    packed = [Occurrences.concatenate(parts) for parts in by_width(pack_images(given))]
    duplicates = []
    for occurrences in packed:
        keyed = keyed_codes(occurrences, radius=radius, count=len(occurrences))
        near = [find_neighbours(codes, partial(near_codes, radius=radius)) for codes in keyed]
        neighbours = Neighbours.concatenate(neighbours for neighbours, _ in near)
        clusters = merge_clusters(clusters for _, clusters in near)
        duplicates.append(find_duplicates(occurrences, neighbours, clusters))
    found = type(duplicates[0]).concatenate(duplicates) if duplicates else None
    return sorted(duplicate_rows(found, mark_dropped(found, policy))) if found is not None else []


def by_width(tables: Iterable[Occurrences]) -> list[list[Occurrences]]:
    return [list(some) for _, some in groupby(sorted(tables, key=width), key=width)]


def width(table: Occurrences) -> int:
    return table.codes.itemsize


def dropped(duplicates: Iterable[Duplicate]) -> set[str]:
    return {duplicate.document for duplicate in duplicates if duplicate.is_dropped}


def brute_force(given: Sequence[SettledDocument], *, radius: int, policy: Policy) -> list[Duplicate]:
    """Return the duplicates by comparing all occurrences with all."""
    shown = [
        (each.document.id, position, found.image)
        for each in given
        for position, found in enumerate(each.images)
        if not found.image.is_flat
    ]
    nearest: dict[int, tuple[int, bool, str]] = {}
    cluster = {image.hash: image.hash for _, _, image in shown}
    for (row, (_, _, one)), (other_row, (_, _, other)) in combinations(enumerate(shown), 2):
        distance = 0 if one.hash == other.hash else bits_apart(one, other)
        if distance is not None and distance <= radius:
            is_other = one.hash != other.hash
            nearest[row] = min((distance, is_other, other.hash), nearest.get(row, (99, True, "")))
            nearest[other_row] = min((distance, is_other, one.hash), nearest.get(other_row, (99, True, "")))
            smaller, larger = sorted((cluster[one.hash], cluster[other.hash]))
            cluster = {image: smaller if name == larger else name for image, name in cluster.items()}
    found = [
        Duplicate(cluster[image.hash], document, position, image.hash, nearest[row][2], nearest[row][0], False)
        for row, (document, position, image) in enumerate(shown)
        if row in nearest
    ]
    gone = going(found, policy)
    return sorted(
        Duplicate(d.cluster, d.document, d.position, d.image, d.nearest, d.distance, (d.document, d.cluster) in gone)
        for d in found
    )


def made_up(*, bits: int, seed: int = 0, count: int = 40) -> list[SettledDocument]:
    """Return documents of three images each: near, equal, repeated, flat and pixel-less ones."""
    chance = np.random.default_rng(seed)
    fingerprints: list[str | None] = [None, None]
    for _ in range(12):
        centre = int.from_bytes(chance.bytes(bits // 8))
        flips = [sum(1 << int(bit) for bit in chance.choice(bits, times, replace=False)) for times in (0, 0, 1, 3, 5)]
        fingerprints += [f"{centre ^ flip:0{bits // 4}x}" for flip in flips]
    images = [
        Image(hashed(f"image{number:02}"), fingerprint=fingerprint, is_flat=number % 11 == 3)
        for number, fingerprint in enumerate(fingerprints)
    ]
    return [settled(f"d{n:02}", (images[i] for i in chance.integers(len(images), size=3))) for n in range(count)]


def run(
    given: Sequence[SettledDocument],
    expected: Sequence[Duplicate],
    *,
    radius: int,
    policy: Policy,
    rows: int = ROWS_PER_PARTITION,
    **options: int,
) -> None:
    """Run the stage and compare its rows and its dropped documents."""
    search = by_hash(radius, rows=rows, **options)

    def assemble(root: beam.Pipeline) -> None:
        found = root | beam.Create(given) | FindDuplicates(search, policy, rows)
        assert_that(found.duplicates, equal_to(expected), label="duplicates")
        assert_that(found.dropped | beam.Distinct(), equal_to(sorted(dropped(expected))), label="dropped")
        counts = found.counts | beam.CombinePerKey(sum) | beam.Filter(lambda each: each[0] in numbers)
        assert_that(counts, equal_to([*numbers.items()]), label="counts")

    left = len(expected) if policy is Policy.KEEP_ALL else 0
    numbers = {("duplicates", "occurrences"): len(expected), ("duplicates", "left"): left}
    run_pipeline(assemble, runner=Runner.LOCAL, workers=1)


@pytest.mark.parametrize(
    ("policy", "going"),
    [
        (Policy.DROP_DOCUMENTS, {"d1", "d2", "d3", "d4"}),
        # d1 takes x; d2 shows x and is dropped, so y stays free; d3 takes y; d4 shows z twice.
        (Policy.KEEP_FIRST, {"d2", "d4"}),
        (Policy.KEEP_ALL, set()),
    ],
)
def test_policies(policy: Policy, going: set[str]) -> None:
    found = plain(documents("d1:x,p", "d2:x,y", "d3:y", "d4:z,z", "d5:q"), radius=0, policy=policy)
    assert dropped(found) == going
    assert {(d.document, d.image) for d in found} == {
        (document, hashed(name)) for document, name in (("d1", "x"), ("d2", "x"), ("d2", "y"), ("d3", "y"), ("d4", "z"))
    }
    if policy is Policy.KEEP_FIRST:
        marked = {(d.document, d.image) for d in found if d.is_dropped}
        assert marked == {("d2", hashed("x")), ("d4", hashed("z"))}


@given(
    st.integers(0, 99), st.sampled_from([64, 128, 256]), st.integers(0, 12), st.sampled_from(Policy), st.integers(0, 30)
)
@settings(max_examples=60)
def test_the_steps_give_what_comparing_all_with_all_gives(
    seed: int, bits: int, radius: int, policy: Policy, count: int
) -> None:
    given = made_up(bits=bits, seed=seed, count=count)
    expected = brute_force(given, radius=radius, policy=policy)
    assert plain(given, radius=radius, policy=policy) == expected
    random.Random(seed).shuffle(given)
    assert plain(given, radius=radius, policy=policy) == expected


@pytest.mark.parametrize(
    ("bits", "radius", "policy", "options"),
    [
        (64, 3, Policy.DROP_DOCUMENTS, {}),
        (64, 12, Policy.KEEP_ALL, CROWDED),
        (256, 4, Policy.KEEP_FIRST, ONE_BY_ONE),
    ],
)
def test_the_stage_gives_what_comparing_all_with_all_gives(
    bits: int, radius: int, policy: Policy, options: dict[str, int]
) -> None:
    """Whatever the number of partitions, and the order of the documents."""
    given = made_up(bits=bits)
    expected = brute_force(given, radius=radius, policy=policy)
    assert len(expected) > 20
    run(random.Random(bits).sample(given, len(given)), expected, radius=radius, policy=policy, **options)


def test_no_duplicates_give_no_rows() -> None:
    run(documents("d1:a,b", "d2:c", a=PLAIN, b=FAR), [], radius=3, policy=Policy.KEEP_FIRST)


def test_a_placeholder_in_every_document_is_one_code() -> None:
    """What it takes is some arrays of its occurrences: neither pairs nor an object for each."""
    count = 100_000
    placeholder = np.repeat(from_hex([hashed("white")]), count)
    ids = np.array([f"d{n}" for n in range(count)], object)
    tracemalloc.start()
    occurrences = Occurrences(np.repeat(from_hex([PLAIN]), count), placeholder, np.zeros(count, np.int64), ids)
    codes = list(keyed_codes(occurrences, radius=3, count=count))
    found = find_duplicates(occurrences, Neighbours.concatenate([]), Clusters.concatenate([]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [len(each) for each in codes] == [1] * 4 and len(found) == count
    assert peak < 500 * count


def crowd(count: int) -> Codes:
    """Return different codes that share one key."""
    codes = from_hex([f"{number:016x}" for number in range(count)])
    images = from_hex([hashed(f"i{number:06}") for number in range(count)])
    return Codes(codes, images, np.zeros(count, np.int64))


@pytest.mark.parametrize("count", [0, 1, 2, 5, 40, 150])
@pytest.mark.parametrize("limit", [1, 2, 16, 1000])
def test_the_cells_of_a_crowded_bucket_hold_each_pair(count: int, limit: int) -> None:
    tables = list(cut_crowded(crowd(count), limit))
    pairs = {pair for table in tables for pair in combinations(sorted(table.codes.tolist()), 2)}
    assert len(pairs) == count * (count - 1) // 2
    assert max(map(len, tables)) <= limit + 2
    assert len(tables) <= 1 + (-(-2 * count // limit)) ** 2 / 2


def test_only_crowded_buckets_are_cut() -> None:
    codes = crowd(10)
    codes.keys[:3] = 1
    rest, *cells = cut_crowded(codes, 4)
    assert rest.keys.tolist() == [1, 1, 1]
    assert {code for cell in cells for code in cell.codes.tolist()} == set(codes.codes[3:].tolist())


GRAPHS = st.integers(1, 30).flatmap(
    lambda count: st.tuples(st.just(count), st.lists(st.tuples(*[st.integers(0, count - 1)] * 2)))
)


def reached(count: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return the smallest node that each reaches, by a search from every node."""
    reach = [{node} for node in range(count)]
    for _ in range(count):
        for first, second in pairs:
            reach[first] |= reach[second]
            reach[second] |= reach[first]
    return [min(nodes) for nodes in reach]


@given(GRAPHS, st.integers(0, 40))
def test_a_node_is_labelled_by_the_smallest_it_reaches(graph: tuple[int, list[tuple[int, int]]], first: int) -> None:
    count, pairs = graph
    edges = np.array(pairs, np.int64).reshape(-1, 2).T
    roots = join(np.arange(count), edges[:, :first])
    assert join(roots, edges[:, first:]).tolist() == reached(count, pairs)


def test_a_long_chain_is_one_component() -> None:
    order = np.random.default_rng(0).permutation(100_000)
    assert not join(np.arange(len(order)), np.stack([order[:-1], order[1:]])).any()


@given(GRAPHS, st.integers(1, 5))
def test_clusters_of_parts_merge_into_the_components(graph: tuple[int, list[tuple[int, int]]], parts: int) -> None:
    count, pairs = graph
    names = from_hex([hashed(f"{number:02}") for number in range(count)])
    edges = np.array(pairs, np.int64).reshape(-1, 2).T
    tables = [Clusters(names, names, names[join(np.arange(count), edges[:, part::parts])]) for part in range(parts)]
    merged = merge_clusters(tables)
    assert merged.images.tolist() == names.tolist()
    assert merged.clusters.tolist() == names[reached(count, pairs)].tolist()


def test_what_a_faulty_policy_leaves_is_counted() -> None:
    given = documents("d1:a", "d2:b", "d3:c", "d4:a,e", "d5:e", a=PLAIN, b=NEAR, c=FAR, e=FAR)
    (occurrences,) = pack_images(given)
    near = [find_neighbours(c, partial(near_codes, radius=1)) for c in keyed_codes(occurrences, radius=1, count=9)]
    clusters = merge_clusters(found for _, found in near)
    found = find_duplicates(occurrences, Neighbours.concatenate(own for own, _ in near), clusters)
    everyone = found.documents.tolist()
    assert sorted(everyone) == ["d1", "d2", "d3", "d4", "d4", "d5"]
    for gone, left in ((["d4", "d5"], 2), (["d1", "d2", "d3"], 2), (["d1", "d2", "d5"], 2), (["d2", "d4", "d5"], 0)):
        counts = count_duplicates(found, np.array([document in gone for document in everyone]))
        assert (counts["occurrences"], counts["left"]) == (6, left)
