"""The Beam path gives what the plain path gives."""

import numpy as np
import pytest
from apache_beam import Create
from apache_beam.metrics import MetricsFilter
from apache_beam.testing import test_pipeline as beam_testing
from apache_beam.testing.util import assert_that, equal_to

from pipelines.dedupe.bands import Bands
from pipelines.dedupe.cells import Code, cells_of, compare_cell
from pipelines.dedupe.occurrences import Occurrence
from pipelines.dedupe.policies import find_duplicates
from pipelines.dedupe.transforms import FindDuplicates
from pipelines.settings import Policy


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


def crowded_occurrences(*, near: int, equal: int) -> list[Occurrence]:
    """Return pictures that differ in 12 bits of one band alone, so that they share all other buckets, and two often."""
    random = np.random.default_rng(7)
    bands = Bands(bits=64, radius=1)
    single = np.uint64(1) << np.arange(64, dtype=np.uint64)
    free = np.flatnonzero(bands.values(bands.permute(single[:, None]), 0) == 0)[:12]  # bits outside the first band
    numbers = random.choice(2**12, near, replace=False)
    codes = [sum(1 << int(bit) for place, bit in enumerate(free) if number >> place & 1) for number in numbers]
    centre = int("5" * 16, 16)
    places = [Occurrence(f"near{n:06}", 0, f"image{n:06}", f"{code ^ centre:016x}") for n, code in enumerate(codes)]
    places += [Occurrence(f"equal{n:06}", 0, "placeholder", "0" * 16) for n in range(equal)]
    places += [Occurrence(f"alike{n:06}", 0, f"alike{n:06}", "f" * 16) for n in range(equal)]
    return places


@pytest.mark.parametrize("policy", list(Policy))
def test_buckets_cut_into_blocks_give_the_same(policy: Policy) -> None:
    places = crowded_occurrences(near=300, equal=40)
    expected = find_duplicates(places, radius=2, policy=policy)
    with beam_testing.TestPipeline(runner="FnApiRunner") as pipeline:
        found = pipeline | Create(places) | FindDuplicates(2, policy, bucket_codes=32)
        assert_that(found, equal_to(expected))


def test_no_cell_is_large_however_skewed_the_data() -> None:
    """2,000 different codes share one bucket; 4,000 occurrences of two looks are two codes."""
    places = crowded_occurrences(near=2_000, equal=2_000)
    expected = find_duplicates(places, radius=1, policy=Policy.DROP_DOCUMENTS)
    pipeline = beam_testing.TestPipeline(runner="FnApiRunner")
    found = pipeline | Create(places) | FindDuplicates(1, Policy.DROP_DOCUMENTS, bucket_codes=256)
    assert_that(found, equal_to(expected))
    result = pipeline.run()
    result.wait_until_finish()
    (cells,) = result.metrics().query(MetricsFilter().with_name("cell_codes"))["distributions"]
    assert 256 < cells.committed.max < 1.25 * 2 * 256


@pytest.mark.parametrize("count", [0, 1, 5, 40, 150])
@pytest.mark.parametrize("bucket_codes", [1, 16, 1000])
def test_the_cells_of_a_bucket_report_each_pair_once(count: int, bucket_codes: int) -> None:
    codes = [Code(f"{number:016x}", f"i{number:03}") for number in range(count)]
    cells: dict[str, list[Code]] = {}
    for code in codes:
        for label, member in cells_of(("0:0", code), {"0:0": count}, bucket_codes):
            cells.setdefault(label, []).append(member)
    pairs = [near for label, members in cells.items() for near in compare_cell(label, members, radius=3)]
    expected = [
        (a.image, b.image, (x ^ y).bit_count())
        for x, a in enumerate(codes)
        for y, b in enumerate(codes)
        if x < y and (x ^ y).bit_count() <= 3
    ]
    # choice 0 is the first of all: it reports every pair of its bucket
    assert sorted((*sorted(near[:2]), near.distance) for near in pairs) == expected
