"""One picture for many dead addresses of a host, against a picture that many pages show."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_pipeline import TestPipeline as Pipeline
from apache_beam.testing.util import assert_that, equal_to

from pipelines.images import obtain
from pipelines.images.inspect import PackedImage
from pipelines.images.transforms import LeaveOutPlaceholders
from pipelines.settings import ImagesConfig
from schemas.documents import Image
from schemas.failures import Failure, Reason, Stage
from schemas.messages import ConfigError

Outcomes = list[tuple[str, Any]]
FIVE = ImagesConfig(placeholder_addresses=5)


def picture(content: str, landed: str | None = None) -> PackedImage:
    return PackedImage(Image(content), landed=landed)


def left_out(outcomes: Outcomes, config: ImagesConfig = FIVE) -> set[str]:
    """Return which addresses are left out, by the plain functions; in any order the same."""
    shared = Counter(sign for sign, _ in {pair for outcome in outcomes for pair in obtain.keyed_signs(outcome)})
    many = {sign: count for sign, count in shared.items() if 0 < config.placeholder_addresses <= count}
    judged = [obtain.judge(outcome, many, config) for outcome in outcomes]
    assert all(found.reason is Reason.REMOVED_IMAGE for _, found in judged if isinstance(found, Failure))
    return {uri for uri, found in judged if isinstance(found, Failure)}


def dead(count: int, **more: Any) -> Outcomes:
    return [(f"http://h.test/{number}.jpg", picture("gone", **more)) for number in range(count)]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (dead(5), 5),
        (dead(4), 0),
        ([*dead(4), ("http://other.test/x.jpg", picture("gone"))], 0),  # of one host
        ([*dead(4), ("http://H.test:80/0.jpg#part", picture("gone"))], 0),  # another spelling of an address
        ([(f"http://h.test/{n}.jpg", picture(str(n))) for n in range(9)], 0),
        ([(f"img/{n}.jpg", picture("gone")) for n in range(9)], 0),  # files of the user's own
        ([(f"http://h{n}.test/a.jpg", picture("gone", "http://cdn.test/none.png")) for n in range(6)], 6),
        ([(f"http://h.test/{n}.jpg", picture(str(n), "https://cdn.test/none.png")) for n in range(6)], 6),
        ([(f"http://h{n}.test/a.jpg", picture("gone", f"https://h{n}.test/a.jpg")) for n in range(9)], 0),
        ([(f"http://farm{n}.flickr.test/{n}.jpg", picture("gone")) for n in range(5)], 5),  # machines of one host
        ([(f"http://10.{n}.0.1/{n}.jpg", picture("gone")) for n in range(9)], 0),
        # Names that somebody else has bought: each leads to an address of its own at their host.
        ([(f"http://h{n}.test/a.jpg", picture("gone", f"http://parked.test/x.png?of=h{n}")) for n in range(5)], 5),
    ],
)
def test_what_many_addresses_share(outcomes: Outcomes, expected: int) -> None:
    assert len(left_out(outcomes)) == expected
    assert left_out(random.Random(1).sample(outcomes, len(outcomes))) == left_out(outcomes)
    assert left_out(outcomes, ImagesConfig(placeholder_addresses=0)) == set()


def test_others_of_the_host_stay() -> None:
    assert left_out([*dead(6), ("http://h.test/sound.jpg", picture("sound"))]) == {uri for uri, _ in dead(6)}


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("a" * 64, picture("a" * 64)),
        ("A" * 64, picture("a" * 64)),
        ("https://cdn.test/none.png", picture("x", "http://cdn.test/none.png")),
        ("http://h.test/0.jpg", picture("x")),
    ],
)
def test_a_known_one_is_left_out_wherever_it_is(name: str, outcome: PackedImage) -> None:
    outcomes: Outcomes = [("http://h.test/0.jpg", outcome)]
    assert left_out(outcomes, ImagesConfig(placeholders=(name,)))
    assert not left_out(outcomes, ImagesConfig(placeholders=()))


def test_a_known_one_is_named_by_an_address_or_a_digest() -> None:
    with pytest.raises(ConfigError, match=r"images\.placeholders"):
        ImagesConfig(placeholders=("removed.png",))


def test_the_stage_gives_what_the_plain_functions_give() -> None:
    failure = ("http://h.test/none.jpg", Failure(Stage.IMAGES, "http://h.test/none.jpg", Reason.NOT_FOUND))
    outcomes: Outcomes = [*dead(6), ("http://h.test/sound.jpg", picture("sound"))]
    config = ImagesConfig(placeholder_addresses=5)
    expected = left_out(outcomes, config) | {failure[0]}
    failed: Callable[[Any], bool] = lambda outcome: isinstance(outcome[1], Failure)  # noqa: E731
    with Pipeline() as root:
        parts = (root | "a" >> beam.Create(outcomes[:3]), root | "b" >> beam.Create([*outcomes[3:], failure]))
        found = parts | LeaveOutPlaceholders(config) | beam.Flatten() | beam.Filter(failed) | beam.Keys()
        assert_that(found, equal_to(sorted(expected)))
