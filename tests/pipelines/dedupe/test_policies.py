"""Which occurrences are duplicates, of what, and which documents go."""

import random

import pytest

from pipelines.dedupe.occurrences import Occurrence
from pipelines.dedupe.policies import dropped_documents, find_duplicates
from pipelines.settings import Policy
from schemas.duplicates import Duplicate

PLAIN, NEAR, FAR = "00000000000000ff", "00000000000001ff", "ffffffffffffffff"
CHAIN = ["0000000000000000", "0000000000000007", "000000000000003f"]  # 3 bits from one to the next


def occurrences(*entries: str, **fingerprints: str) -> list[Occurrence]:
    """Return occurrences written `document:image,image`."""
    found = []
    for entry in entries:
        document, _, images = entry.partition(":")
        for position, image in enumerate(images.split(",")):
            found.append(Occurrence(document, position, image, fingerprints.get(image)))
    return found


def test_an_image_in_two_documents_is_its_own_duplicate() -> None:
    found = find_duplicates(occurrences("d1:a", "d2:b,a", a=PLAIN, b=FAR), radius=3, policy=Policy.DROP_DOCUMENTS)
    assert found == [Duplicate("a", "d1", 0, "a", "a", 0, True), Duplicate("a", "d2", 1, "a", "a", 0, True)]


def test_an_image_twice_in_one_document_is_a_duplicate() -> None:
    found = find_duplicates(occurrences("d1:a,a"), radius=3, policy=Policy.KEEP_FIRST)
    assert [(d.position, d.nearest, d.distance, d.is_dropped) for d in found] == [(0, "a", 0, True), (1, "a", 0, True)]


def test_near_images_are_duplicates_within_the_radius_only() -> None:
    places = occurrences("d1:a", "d2:b", a=PLAIN, b=NEAR)
    assert find_duplicates(places, radius=0, policy=Policy.DROP_DOCUMENTS) == []
    assert find_duplicates(places, radius=1, policy=Policy.DROP_DOCUMENTS) == [
        Duplicate("a", "d1", 0, "a", "b", 1, True),
        Duplicate("a", "d2", 0, "b", "a", 1, True),
    ]


def test_equal_fingerprints_of_different_images_are_at_distance_0() -> None:
    places = occurrences("d1:c", "d2:b", "d3:a", a=PLAIN, b=PLAIN, c=PLAIN)
    found = find_duplicates(places, radius=0, policy=Policy.KEEP_ALL)
    assert [(d.image, d.nearest, d.distance) for d in found] == [("c", "a", 0), ("b", "a", 0), ("a", "b", 0)]


def test_a_chain_is_one_cluster_and_names_the_closest() -> None:
    fingerprints = dict(zip("cba", CHAIN, strict=True))
    found = find_duplicates(occurrences("d1:c", "d2:b", "d3:a", **fingerprints), radius=3, policy=Policy.KEEP_ALL)
    assert [(d.cluster, d.image, d.nearest, d.distance) for d in found] == [
        ("a", "c", "b", 3),
        ("a", "b", "a", 3),
        ("a", "a", "b", 3),
    ]


def test_flat_images_are_left_out() -> None:
    flat = [Occurrence(document, 0, "white", "8000000000000000", is_flat=True) for document in ("d1", "d2")]
    assert find_duplicates(flat, radius=3, policy=Policy.DROP_DOCUMENTS) == []


def test_images_without_pixels_are_duplicates_of_themselves_only() -> None:
    found = find_duplicates(occurrences("d1:a,b", "d2:a"), radius=3, policy=Policy.DROP_DOCUMENTS)
    assert [(d.document, d.image) for d in found] == [("d1", "a"), ("d2", "a")]


@pytest.mark.parametrize(
    ("policy", "dropped"),
    [
        (Policy.DROP_DOCUMENTS, {"d1", "d2", "d3", "d4"}),
        # d1 takes x; d2 shows x and is dropped, so y stays free; d3 takes y; d4 shows z twice.
        (Policy.KEEP_FIRST, {"d2", "d4"}),
        (Policy.KEEP_ALL, set()),
    ],
)
def test_policies(policy: Policy, dropped: set[str]) -> None:
    places = occurrences("d1:x,p", "d2:x,y", "d3:y", "d4:z,z", "d5:q")
    found = find_duplicates(places, radius=0, policy=policy)
    assert dropped_documents(found) == dropped
    assert {(d.document, d.image) for d in found} == {
        ("d1", "x"), ("d2", "x"), ("d2", "y"), ("d3", "y"), ("d4", "z")
    }  # fmt: skip
    if policy is Policy.KEEP_FIRST:
        assert {(d.document, d.image) for d in found if d.is_dropped} == {("d2", "x"), ("d4", "z")}


def test_two_near_images_of_one_document_drop_it() -> None:
    places = occurrences("d1:a,b", "d2:b", a=PLAIN, b=NEAR)
    found = find_duplicates(places, radius=3, policy=Policy.KEEP_FIRST)
    assert dropped_documents(found) == {"d1"}


def test_the_order_of_input_does_not_matter() -> None:
    places = occurrences("d1:x,p", "d2:x,y", "d3:y,a", "d4:z,z,b", a=PLAIN, b=NEAR, x=CHAIN[0], p=CHAIN[1])
    expected = find_duplicates(places, radius=3, policy=Policy.KEEP_FIRST)
    for seed in range(5):
        shuffled = random.Random(seed).sample(places, len(places))
        assert find_duplicates(shuffled, radius=3, policy=Policy.KEEP_FIRST) == expected


def test_many_occurrences_of_one_image_take_linear_time() -> None:
    places = [Occurrence(f"d{number:06}", 0, "a", PLAIN) for number in range(20_000)]
    assert len(find_duplicates(places, radius=3, policy=Policy.DROP_DOCUMENTS)) == 20_000
