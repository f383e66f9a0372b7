"""Of each reason its commonest message is found, whatever the order and the parts."""

from __future__ import annotations

import pytest

from pipelines.shards.manifest import Message, commonest, merge_messages, messages_of
from schemas.failures import Failure, Reason, Stage
from schemas.tables import row_of


def failure(record: str, reason: Reason, message: str, stage: Stage = Stage.SOURCES) -> Failure:
    return Failure(stage, record, reason, message)


FAILURES = [
    failure("d3", Reason.LOW_SCORE, "score 3, expected at least 25"),
    failure("d1", Reason.LOW_SCORE, "score 24, expected at least 25", Stage.DOCUMENTS),
    failure("d2", Reason.LOW_SCORE, "no score"),
    failure("x9", Reason.NOT_FOUND, "http://host/a.jpg?x=1: 404"),
    failure("x8", Reason.NOT_FOUND, "https://other/b.jpg: 404"),
    failure("x1", Reason.NOT_FOUND, "'a.png': no such member"),
    failure("b", Reason.BROKEN_RECORD, "no text"),
    failure("a", Reason.BROKEN_RECORD, "no id"),
]


@pytest.mark.parametrize("failures", [FAILURES, FAILURES[::-1]])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_commonest_message_of_a_reason(failures: list[Failure], size: int) -> None:
    """Messages that differ in numbers and addresses alone are one kind; of equals the smallest record is shown."""
    parts = [failures[start : start + size] for start in range(0, len(failures), size)]
    kinds = merge_messages(messages_of(map(row_of, part)) for part in parts)
    assert commonest(kinds) == {
        "low-score": Message(2, "d1", "score 24, expected at least 25"),
        "not-found": Message(2, "x8", "https://other/b.jpg: 404"),
        "broken-record": Message(1, "a", "no id"),
    }
    assert sum(message.times for message in kinds.values()) == len(failures)
    assert {stage for stage, reason, _ in kinds if reason == "low-score"} == {"sources", "documents"}


def test_a_transient_failure_is_explained_in_its_words_and_as_it_lasts() -> None:
    failures = [Failure(Stage.IMAGES, "d1", Reason.TIMED_OUT, f"{n} s", image=n) for n in (2, 1)]
    tables = [[each.lasting for each in failures], failures]  # the version's, and the one beside it
    assert commonest(merge_messages(messages_of(map(row_of, table)) for table in tables)) == {
        "timed-out": Message(2, "image 1 of d1", "1 s"),
        "unreached": Message(2, "image 1 of d1", ""),
    }
