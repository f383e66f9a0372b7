"""FAILURE: the one row for everything that was rejected, anywhere, and the closed list of reasons.

A failure row of a version holds nothing that another try could change: no clock time, no number of attempts, and not
how a host failed that may answer the next time (`Failure.lasting`): that stands beside the version, in `retrievals/`.
Two equal builds must give equal bytes. What is wrong with the machine rather than with a record is no row at all
(`is_about_machine`).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa

from schemas.messages import MultilinkError
from schemas.tables import clean, column, table_schema, travels

_OF_MACHINE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
    }
)
_OF_MACHINE_TEXTS = tuple(map(os.strerror, sorted(_OF_MACHINE)))


class Stage(StrEnum):
    SOURCES = "sources"
    DOCUMENTS = "documents"
    IMAGES = "images"
    DEDUPE = "dedupe"
    RULES = "rules"  # of documents, where they are applied after dedupe
    QUALITY = "quality"  # filters that are off by default
    FEATURES = "features"
    COPY_DETECTION = "copy-detection"
    SHARDS = "shards"
    LINKING = "linking"


class Reason(StrEnum):
    """Why a record, document or image was left out. Closed: add a member here, with its meaning."""

    # sources: a record that cannot be used as it is
    BROKEN_RECORD = "broken-record"  # not the published format, truncated, bad UTF-8
    MISSING_FIELD = "missing-field"
    MISSPELT_FIELD = "misspelt-field"  # nobody reads it, and its name is nearly that of an optional one
    DUPLICATE_RECORD = "duplicate-record"
    ID_TAKEN = "id-taken"  # another record has the same id and another content
    DELETED_RECORD = "deleted-record"  # its author or a moderator took it down
    LOW_SCORE = "low-score"
    NOT_AN_ALBUM = "not-an-album"
    # fetching: an answer that could not be had
    ADDRESS_REFUSED = "address-refused"  # private, loopback or link-local, not allowed by configuration
    INVALID_URL = "invalid-url"
    ROBOTS_DENIED = "robots-denied"
    AI_TXT_DENIED = "ai-txt-denied"
    ROBOTS_TAG = "robots-tag"  # X-Robots-Tag: noai, noimageai, noindex, noimageindex, a date that has passed
    ROBOTS_META = "robots-meta"  # the same in <meta name="robots">
    TDM_RESERVED = "tdm-reserved"  # TDMRep, in a file of the host, a header or a page
    USAGE_DENIED = "usage-denied"  # Content-Usage or Content-Signal: no training; in robots.txt, a header or a page
    NOT_FOUND = "not-found"  # 404, 410, or a local file that is not there
    FORBIDDEN = "forbidden"  # 401, 403, 451
    HTTP_ERROR = "http-error"  # any other status that is not a success
    CONNECTION_FAILED = "connection-failed"
    TIMED_OUT = "timed-out"
    TOO_MANY_REDIRECTS = "too-many-redirects"
    TOO_LARGE = "too-large"  # more bytes than allowed
    TRUNCATED = "truncated"  # fewer bytes than announced
    UNREACHED = "unreached"  # in a version: no answer that lasts, one of `TRANSIENT`
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
    # quality
    ODD_ASPECT = "odd-aspect"
    BLURRED = "blurred"
    IMAGE_TEXT_RATIO = "image-text-ratio"
    OTHER_LANGUAGE = "other-language"
    # features
    FEATURE_MISSING = "feature-missing"
    # linking
    UNREADABLE = "unreadable"  # it lacks what the model reads, or its shard contradicts itself
    NOT_FINITE = "not-finite"  # a similarity is NaN or infinite, as its vectors are
    # shards
    LEAKED = "leaked"  # shares an image or a text with a document of a split it yields to


# Another attempt may succeed: the next build asks again, and no file of a version tells them apart.
TRANSIENT = frozenset({Reason.CONNECTION_FAILED, Reason.TIMED_OUT, Reason.TRUNCATED, Reason.HTTP_ERROR})

# A rule of the data set, or whoever published a record, refused a sound one: expected, and outside a stage's failure
# budget.
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
        Reason.TOO_SMALL,
        Reason.ODD_ASPECT,
        Reason.BLURRED,
        Reason.IMAGE_TEXT_RATIO,
        Reason.OTHER_LANGUAGE,
        Reason.TAKEN_DOWN,
        Reason.ROBOTS_DENIED,
        Reason.AI_TXT_DENIED,
        Reason.ROBOTS_TAG,
        Reason.ROBOTS_META,
        Reason.TDM_RESERVED,
        Reason.USAGE_DENIED,
        Reason.LEAKED,
    }
)

# Of one sentence, link or image of a record or document that stays: a stage that counts those does not count these.
OF_PARTS = frozenset(
    {
        Reason.MISSPELT_FIELD,
        Reason.EMPTY_SENTENCE,
        Reason.BAD_LINK,
        Reason.FEATURE_MISSING,
        Reason.ANIMATED_IMAGE,
        Reason.TOO_SMALL,
        Reason.ODD_ASPECT,
        Reason.BLURRED,
    }
)


@travels
@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """One rejected record, document or image.

    Attributes:
        stage: where it was rejected.
        record_id: id of the record or document; of an image whose documents are not known yet, its address.
        reason: one of the closed list.
        message: one line: expected, found, where.
        exception: class name of the exception behind it, if one was caught.
        image: number of the image in the list of its record; None: the document itself.
    """

    stage: Stage
    record_id: str
    reason: Reason
    message: str = ""
    exception: str | None = None
    image: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "record_id", clean(self.record_id))  # names of files and messages of libraries
        object.__setattr__(self, "message", clean(self.message))

    @property
    def where(self) -> str:
        """Return what was rejected, for people."""
        return self.record_id if self.image is None else f"image {self.image} of {self.record_id}"

    @property
    def lasting(self) -> Failure:
        """Return the row as it is in a version: refused today and timed out tomorrow is one."""
        if self.reason not in TRANSIENT:
            return self
        return replace(self, reason=Reason.UNREACHED, message="", exception=None)


class Rejection(Exception):  # noqa: N818 - an outcome, not a fault of the program
    """Something cannot be used.

    Attributes:
        reason: one of the closed list.
        message: one line: what was expected, what came instead.
        exception: class name of a library's exception behind it, if there was one.
    """

    def __init__(self, reason: Reason, message: str, exception: str | None = None, *more: object) -> None:
        super().__init__(reason, message, exception, *more)  # all positional: so it pickles
        self.reason, self.message, self.exception = reason, message, exception

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    def failure(self, record_id: str, *, stage: Stage = Stage.SOURCES) -> Failure:
        """Return the failure row of a record."""
        return Failure(stage, record_id, self.reason, self.message, self.exception)


FAILURE_SCHEMA = table_schema(
    "failures",
    1,
    [
        column("stage", pa.string(), "stage that rejected it"),
        column("record_id", pa.string(), "id of the record or document"),
        column("reason", pa.string(), "one of the closed list in schemas/failures.py"),
        column("message", pa.string(), "what was expected, what was found, where"),
        column("exception", pa.string(), "class of the exception caught, if any", nullable=True),
        column("image", pa.int32(), "number of the image in the list of its record; null: no image", nullable=True),
    ],
)


def is_about_machine(error: BaseException | None) -> bool:
    """Return whether an exception, or what caused it, is about the machine: disk, memory or open files.

    Then it says nothing of the record that was being handled, and must end the build. pyarrow's errors of files have
    no number where a Parquet file was being read or written: they are recognised by the system's text.
    """
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        if isinstance(error, OSError):
            if error.errno in _OF_MACHINE:
                return True
            if error.errno is None and any(text in str(error) for text in _OF_MACHINE_TEXTS):
                return True
        error = error.__cause__
    return False


def unexpected(error: Exception, *, stage: Stage, record_id: str) -> Failure:
    """Return the failure row of a record that raised what no one expected, for the border of a stage.

    Raises:
        Exception: the same one, where it is one of the project's own, or about the machine and not about the record.
    """
    if isinstance(error, MultilinkError) or is_about_machine(error):
        raise error
    message = str(error).partition("\n")[0][:200]
    return Failure(stage, record_id, Reason.BROKEN_RECORD, f"unexpected: {message}", type(error).__name__)
