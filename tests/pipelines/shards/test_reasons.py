"""Of each reason its commonest message is found, whatever the order, on any number of workers."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to

from pipelines.shards.manifest import Message
from pipelines.shards.transforms import ExplainFailures
from schemas.failures import Failure, Reason, Stage


def failure(record: str, reason: Reason, message: str) -> Failure:
    return Failure(Stage.SOURCES, record, reason, message)


FAILURES = [
    failure("d3", Reason.LOW_SCORE, "score 3, expected at least 25"),
    failure("d1", Reason.LOW_SCORE, "score 24, expected at least 25"),
    failure("d2", Reason.LOW_SCORE, "no score"),
    failure("x9", Reason.NOT_FOUND, "http://host/a.jpg?x=1: 404"),
    failure("x8", Reason.NOT_FOUND, "https://other/b.jpg: 404"),
    failure("x1", Reason.NOT_FOUND, "'a.png': no such member"),
]


def test_messages_that_differ_in_numbers_and_addresses_alone_are_counted_together() -> None:
    expected = [
        ("low-score", Message(2, "d1", "score 24, expected at least 25")),
        ("not-found", Message(2, "x8", "https://other/b.jpg: 404")),
    ]
    for failures in (FAILURES, FAILURES[::-1]):
        with beam.Pipeline() as pipeline:
            assert_that(pipeline | beam.Create(failures) | ExplainFailures(), equal_to(expected))


def test_of_two_messages_as_frequent_the_one_of_the_smallest_record_is_shown() -> None:
    failures = [failure("b", Reason.BROKEN_RECORD, "no text"), failure("a", Reason.BROKEN_RECORD, "no id")]
    with beam.Pipeline() as pipeline:
        found = pipeline | beam.Create(failures) | ExplainFailures()
        assert_that(found, equal_to([("broken-record", Message(1, "a", "no id"))]))
