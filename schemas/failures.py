"""FAILURE: the one row for everything that was rejected, anywhere, and the closed list of reasons.

A failure row carries no clock time: two equal builds must give equal bytes. When a response was received is written
beside its capture in `raw/`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from schemas.tables import column, table_schema

FAILURE_VERSION = 1


class Stage(StrEnum):
    SOURCES = "sources"
    DOCUMENTS = "documents"
    IMAGES = "images"
    DEDUPE = "dedupe"
    FEATURES = "features"
    SHARDS = "shards"
    LINKING = "linking"


class Reason(StrEnum):
    """Why a record, document or image was left out. Closed: add a member here, with its meaning."""

    # sources: a record that cannot be used as it is
    BROKEN_RECORD = "broken-record"  # not the published format, truncated, bad UTF-8
    MISSING_FIELD = "missing-field"
    DUPLICATE_RECORD = "duplicate-record"
    DELETED_RECORD = "deleted-record"  # its author or a moderator took it down
    LOW_SCORE = "low-score"
    NOT_AN_ALBUM = "not-an-album"
    # fetching: an answer that could not be had
    ADDRESS_REFUSED = "address-refused"  # private, loopback or link-local, not allowed by configuration
    INVALID_URL = "invalid-url"
    ROBOTS_DENIED = "robots-denied"
    NOT_FOUND = "not-found"  # 404, 410, or a local file that is not there
    FORBIDDEN = "forbidden"  # 401, 403, 451
    HTTP_ERROR = "http-error"  # any other status that is not a success
    CONNECTION_FAILED = "connection-failed"
    TIMED_OUT = "timed-out"
    TOO_MANY_REDIRECTS = "too-many-redirects"
    TOO_LARGE = "too-large"  # more bytes than allowed
    TRUNCATED = "truncated"  # fewer bytes than announced
    # images: bytes that are no usable picture
    REMOVED_IMAGE = "removed-image"  # the host's placeholder for a deleted image
    NOT_AN_IMAGE = "not-an-image"
    UNSUPPORTED_FORMAT = "unsupported-format"
    CORRUPT_IMAGE = "corrupt-image"
    TOO_MANY_PIXELS = "too-many-pixels"
    TOO_SMALL = "too-small"
    ANIMATED_IMAGE = "animated-image"
    # documents: filters of SPEC 2
    EMPTY_DOCUMENT = "empty-document"
    TOO_FEW_SENTENCES = "too-few-sentences"
    TOO_MANY_SENTENCES = "too-many-sentences"
    TOO_FEW_IMAGES = "too-few-images"
    TOO_MANY_IMAGES = "too-many-images"
    EMPTY_SENTENCE = "empty-sentence"
    BAD_LINK = "bad-link"
    TAKEN_DOWN = "taken-down"  # on the takedown list
    # dedupe
    DUPLICATE_IMAGE = "duplicate-image"
    # features
    FEATURE_MISSING = "feature-missing"
    # linking
    UNREADABLE = "unreadable"  # it lacks what the model reads, or its shard contradicts itself
    NOT_FINITE = "not-finite"  # a similarity is NaN or infinite, as its vectors are
    # shards
    LEAKED = "leaked"  # shares an image or a text with a document of a split it yields to


# Another attempt may succeed: such failures are not remembered between runs.
TRANSIENT = frozenset({Reason.CONNECTION_FAILED, Reason.TIMED_OUT, Reason.HTTP_ERROR})

# A rule of the data set said no to a sound record: expected, and outside a stage's failure budget.
FILTERED = frozenset(
    {
        Reason.DUPLICATE_RECORD,
        Reason.DELETED_RECORD,
        Reason.LOW_SCORE,
        Reason.NOT_AN_ALBUM,
        Reason.ANIMATED_IMAGE,
        Reason.EMPTY_SENTENCE,
        Reason.TOO_FEW_SENTENCES,
        Reason.TOO_MANY_SENTENCES,
        Reason.TOO_FEW_IMAGES,
        Reason.TOO_MANY_IMAGES,
        Reason.DUPLICATE_IMAGE,
        Reason.TAKEN_DOWN,
        Reason.LEAKED,
    }
)


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """One rejected record, document or image.

    Attributes:
        stage: where it was rejected.
        record_id: id of the record or document; for an image, `<document id>#<position>` or its URL.
        reason: one of the closed list.
        message: one line: expected, found, where.
        exception: class name of the exception behind it, if one was caught.
        attempt: which attempt gave up, counted from 1.
    """

    stage: Stage
    record_id: str
    reason: Reason
    message: str = ""
    exception: str | None = None
    attempt: int = 1


FAILURE_SCHEMA = table_schema(
    "failures",
    FAILURE_VERSION,
    [
        column("stage", pa.string(), "stage that rejected it"),
        column("record_id", pa.string(), "record, document or image"),
        column("reason", pa.string(), "one of the closed list in schemas/failures.py"),
        column("message", pa.string(), "what was expected, what was found, where"),
        column("exception", pa.string(), "class of the exception caught, if any", nullable=True),
        column("attempt", pa.int32(), "attempt that gave up", unit="from 1"),
    ],
)


def failure_row(failure: Failure) -> dict[str, Any]:
    """Return a failure as a row of FAILURE_SCHEMA."""
    return asdict(failure) | {"stage": str(failure.stage), "reason": str(failure.reason)}
