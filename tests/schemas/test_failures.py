"""What is about the machine is told from what is about a record."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.failures import FILTERED, OF_PARTS, TRANSIENT, Failure, Reason, Stage, is_about_machine
from schemas.tables import row_of

FULL = Path("/dev/full")  # every write to it fails as on a full disk


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(code, os.strerror(code)) for code in (errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.EIO)),
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 12 failed"),
        OSError("Error writing bytes to file. Detail: [errno 28] No space left on device"),
    ],
)
def test_the_machine(error: Exception) -> None:
    assert is_about_machine(error)
    wrapped = ValueError("a record")
    wrapped.__cause__ = error
    assert is_about_machine(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "no such file"),
        PermissionError(errno.EACCES, "permission denied"),
        OSError("image file is truncated (3 bytes not processed)"),
        ValueError("No space left on device"),
        RecursionError(),
    ],
)
def test_a_record(error: Exception) -> None:
    assert not is_about_machine(error)


@pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no such device")
def test_a_parquet_file_on_a_full_disk() -> None:
    with pytest.raises(OSError) as caught:
        pq.write_table(pa.table({"x": list(range(100_000))}), FULL)
    assert is_about_machine(caught.value)


def test_enumerations_are_plain_text_in_a_row() -> None:
    row = row_of(Failure(Stage.IMAGES, "a", Reason.NOT_FOUND, "404", image=0))
    assert [*row.values()] == ["images", "a", "not-found", "404", None, 0]
    assert [type(row["stage"]), type(row["reason"])] == [str, str]


# f: a rule, or whoever published it, left it out; otherwise it failed, and a stage's budget counts it.
# t: another try may succeed. p: of a part of a record or document that stays.
MEANINGS = {
    "broken-record": "", "missing-field": "", "misspelt-field": "p", "duplicate-record": "f",
    "id-taken": "", "deleted-record": "f", "low-score": "f", "not-an-album": "f", "address-refused": "",
    "invalid-url": "", "robots-denied": "f",
    "ai-txt-denied": "f", "robots-tag": "f", "robots-meta": "f", "tdm-reserved": "f", "usage-denied": "f",
    "not-found": "", "forbidden": "", "http-error": "t", "connection-failed": "t", "timed-out": "t",
    "too-many-redirects": "", "too-large": "", "truncated": "t", "unreached": "", "removed-image": "",
    "not-an-image": "",
    "unsupported-format": "", "corrupt-image": "", "too-many-pixels": "", "too-small": "fp", "animated-image": "fp",
    "empty-document": "", "too-few-sentences": "f", "too-many-sentences": "f", "too-few-images": "f",
    "too-many-images": "f", "empty-sentence": "fp", "bad-link": "p", "taken-down": "f", "duplicate-image": "f",
    "odd-aspect": "fp", "blurred": "fp", "image-text-ratio": "f", "other-language": "f", "feature-missing": "p",
    "unreadable": "", "not-finite": "", "leaked": "f",
}  # fmt: skip


def test_what_each_reason_means_to_a_stage_s_budget() -> None:
    marks = (("f", FILTERED), ("t", TRANSIENT), ("p", OF_PARTS))
    assert {str(r): "".join(mark for mark, group in marks if r in group) for r in Reason} == MEANINGS
