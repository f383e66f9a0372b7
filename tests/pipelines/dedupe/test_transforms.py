"""The Beam path gives what the plain path gives."""

import numpy as np
import pytest
from apache_beam import Create
from apache_beam.testing import test_pipeline as beam_testing
from apache_beam.testing.util import assert_that, equal_to

from pipelines.config import Policy
from pipelines.dedupe.occurrences import Occurrence
from pipelines.dedupe.policies import find_duplicates
from pipelines.dedupe.transforms import FindDuplicates


def made_up_occurrences(*, bits: int, seed: int = 0) -> list[Occurrence]:
    """Return 120 occurrences in 40 documents: near, equal, repeated, flat and pixel-less images."""
    random = np.random.default_rng(seed)
    fingerprints: list[str | None] = [None, None]
    for _ in range(12):
        centre = int.from_bytes(random.bytes(bits // 8))
        flips = [sum(1 << int(bit) for bit in random.choice(bits, times, replace=False)) for times in (0, 0, 1, 3, 5)]
        fingerprints += [f"{centre ^ flip:0{bits // 4}x}" for flip in flips]
    places = []
    for number in range(120):
        image = int(random.integers(len(fingerprints)))
        place = Occurrence(f"d{number // 3:02}", number % 3, f"image{image:02}", fingerprints[image], image % 11 == 3)
        places.append(place)
    return places


@pytest.mark.parametrize(
    ("bits", "radius", "policy"),
    [(64, 3, Policy.DROP_DOCUMENTS), (64, 8, Policy.KEEP_FIRST), (64, 0, Policy.KEEP_ALL), (256, 4, Policy.KEEP_FIRST)],
)
def test_the_beam_path_is_the_plain_path(bits: int, radius: int, policy: Policy) -> None:
    places = made_up_occurrences(bits=bits)
    expected = find_duplicates(places, radius=radius, policy=policy)
    assert len(expected) > 20
    with beam_testing.TestPipeline(runner="FnApiRunner") as pipeline:
        found = pipeline | Create(places) | FindDuplicates(radius, policy)
        assert_that(found, equal_to(expected))


def test_no_duplicates_give_no_rows() -> None:
    places = [Occurrence("d1", 0, "a", "0" * 16), Occurrence("d1", 1, "b", "f" * 16)]
    with beam_testing.TestPipeline(runner="FnApiRunner") as pipeline:
        found = pipeline | Create(places) | FindDuplicates(3, Policy.DROP_DOCUMENTS)
        assert_that(found, equal_to([]))
