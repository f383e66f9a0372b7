"""What is about the machine is told from what is about a record."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.failures import Failure, Reason, Stage, is_about_machine
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
    row = row_of(Failure(Stage.IMAGES, "a#0", Reason.NOT_FOUND, "404"))
    assert row == {"stage": "images", "record_id": "a#0", "reason": "not-found", "message": "404", "exception": None}
    assert [type(row["stage"]), type(row["reason"])] == [str, str]
