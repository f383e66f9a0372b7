"""Draws and distractor captions: uniform, repeatable, and never about an image of the document."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.draws import CaptionPool, draw, hashed, shuffled_order

POOL = CaptionPool(
    {
        "cat": ["A cat.", "A grey cat sleeps."],
        "dog": ["A dog.", "a CAT."],
        "car": ["A car."],
        "bus": ["A bus.", "A car."],
    }
)


@given(count=st.integers(0, 40), size=st.integers(0, 40), allowed=st.sets(st.integers(0, 39)), key=st.text(max_size=3))
def test_a_draw_has_different_allowed_numbers_as_many_as_there_are(
    count: int, size: int, allowed: set[int], key: str
) -> None:
    numbers = draw(count, size=size, is_allowed=allowed.__contains__, seed=0, key=key)
    possible = allowed & set(range(size))
    assert len(numbers) == len(set(numbers)) == min(count, len(possible)) and set(numbers) <= possible
    assert numbers == draw(count, size=size, is_allowed=allowed.__contains__, seed=0, key=key)


@pytest.mark.parametrize("allowed", [range(10), (2, 3, 5, 7)])
def test_a_draw_is_uniform(allowed: tuple[int, ...]) -> None:
    drawn = Counter(
        number
        for trial in range(4000)
        for number in draw(2, size=10, is_allowed=lambda number: number in allowed, seed=3, key=str(trial))
    )
    expected = 8000 / len(allowed)
    assert drawn.keys() == set(allowed)
    assert all(abs(times - expected) < 5 * expected**0.5 for times in drawn.values())


@given(st.integers(0, 50), st.text(max_size=3))
def test_a_shuffled_order_has_every_number_once(count: int, key: str) -> None:
    assert sorted(shuffled_order(count, seed=0, key=key)) == list(range(count))


def test_every_order_is_as_likely() -> None:
    orders = Counter(tuple(shuffled_order(3, seed=0, key=str(trial))) for trial in range(6000))
    assert len(orders) == 6 and all(abs(times - 1000) < 150 for times in orders.values())


def test_a_hash_depends_on_seed_and_parts() -> None:
    assert (
        len({hashed(0, "a", 1), hashed(1, "a", 1), hashed(0, "a", 2), hashed(0, "a1"), hashed(0, "a", "\ud800")}) == 5
    )
    assert hashed(0, "a") == int(hashlib.sha256(b"0:a").hexdigest()[:16], 16)


@pytest.mark.parametrize(
    ("images", "possible"),
    [
        (["cat"], {"A dog.", "A car.", "A bus."}),  # "a CAT." was written about the cat too
        (["dog", "bus"], {"A grey cat sleeps."}),
        (["car"], {"A cat.", "A grey cat sleeps.", "A dog.", "a CAT.", "A bus."}),
        (["cat", "dog", "car", "bus"], set()),
    ],
)
def test_distractors_are_written_about_no_image_of_the_document(images: list[str], possible: set[str]) -> None:
    seen = set()
    for trial in range(50):
        drawn = POOL.distractors(9, images=images, seed=0, key=str(trial))
        assert len({text.casefold() for text in drawn}) == len(drawn)
        seen.update(drawn)
    assert seen == possible


def test_captions_of_an_image_unknown_to_the_pool() -> None:
    assert len(POOL.distractors(3, images=["none"], seed=0, key="")) == 3
