"""A picture by its address below a root, wherever it is: a file, or embedded in another file.

    pictures/1.jpg                a file of a folder, a tar or a zip (`files.py`)
    00012.tar!/000120007.jpg      a file of an archive below the root
    x.parquet!/image/12           a cell: column and row, from 0
    x.arrow!/images/12/3          of a cell that is a list, one item
    crawl.warc.gz!/29381          the answer in the record at this byte
    x.tar!/k.tiff!/2              the third picture of a TIFF, as a PNG
    x.bin!/bytes=1000-1999        a range of bytes, first and last, as in HTTP

An address is relative: what is below another root has the same one.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image, UnidentifiedImageError

from pipelines.files import INSIDE, BrokenInputError
from pipelines.named_files import FileRejected, path_below, read_named, read_span
from pipelines.tables import is_table, read_cell
from pipelines.warc import is_warc, read_body
from schemas.failures import Reason

_TIFF = (".tif", ".tiff")
_SPAN = re.compile(r"bytes=(\d{1,18})-(\d{1,18})")
_MAX_PIXELS = 100_000_000  # of a picture of a TIFF, before it is decoded


def read_picture(root: str, address: str, *, max_bytes: int) -> bytes:
    """Return the bytes of a picture.

    Args:
        root: folder, tar or zip.
        address: relative to it.
        max_bytes: a larger one is refused.

    Raises:
        FileRejected: there is none, it is outside the root, too large, or cannot be read.
        ConfigError: an archive on the way cannot be read by name.
    """
    outer, is_inside, last = address.rpartition(INSIDE)
    if not is_inside:
        return read_named(root, address, max_bytes=max_bytes)
    if last.isdecimal() and (outer.lower().endswith(_TIFF) or INSIDE in outer):
        return _frame(read_picture(root, outer, max_bytes=max_bytes), int(last))
    if span := _SPAN.fullmatch(last):
        begin, end = map(int, span.groups())
        data = read_span(path_below(root, outer), begin, max(0, end - begin + 1), max_bytes + 1)
    elif is_table(outer):
        with _damage(address):
            data = read_cell(path_below(root, outer), *_cell(last))
    elif is_warc(outer):
        with _damage(address):
            data = _answer(path_below(root, outer), last, max_bytes)
    else:
        return read_named(root, address, max_bytes=max_bytes)
    if len(data) > max_bytes:
        raise FileRejected(Reason.TOO_LARGE, f"{address}: expected at most {max_bytes} bytes, found more")
    return data


def reading_order(address: str) -> tuple[str, tuple[int | str, ...]]:
    """Return a key by which addresses of one file are in the order of the file."""
    container, _, inside = address.partition(INSIDE)
    return container, tuple(f"{int(part):015d}" if part.isdecimal() else part for part in inside.split("/"))


@contextmanager
def _damage(address: str) -> Iterator[None]:
    try:
        yield
    except BrokenInputError as problem:
        raise FileRejected(Reason.CORRUPT_IMAGE, f"{address}: {problem}") from problem


def _cell(place: str) -> tuple[str, int, int | None]:
    """Return the column, the row and the item of `COLUMN/ROW` or `COLUMN/ROW/ITEM`."""
    column, *numbers = place.split("/")
    if not 1 <= len(numbers) <= 2 or not all(number.isdecimal() for number in numbers):
        raise FileRejected(Reason.NOT_FOUND, f"{place}: expected COLUMN/ROW or COLUMN/ROW/ITEM")
    return column, int(numbers[0]), int(numbers[1]) if numbers[1:] else None


def _answer(uri: str, place: str, max_bytes: int) -> bytes:
    """Return the body of the answer in the record that begins at a byte of a WARC."""
    if not place.isdecimal():
        raise FileRejected(Reason.NOT_FOUND, f"{place}: expected the first byte of a record")
    try:
        return read_body(uri, int(place), max_bytes)
    except ValueError as problem:
        raise FileRejected(Reason.CORRUPT_IMAGE, f"no record at byte {place}: {problem}") from problem


def _frame(data: bytes, number: int) -> bytes:
    """Return one of the pictures of a TIFF, from 0, as a PNG."""
    try:
        with Image.open(io.BytesIO(data), formats=("TIFF",)) as pages:
            pages.seek(number)
            if pages.width * pages.height > _MAX_PIXELS:
                found = f"picture {number} of a TIFF has {pages.width} x {pages.height} pixels"
                raise FileRejected(Reason.TOO_MANY_PIXELS, found)
            buffer = io.BytesIO()
            pages.convert("RGB").save(buffer, "PNG")
    except (
        EOFError,
        OSError,
        ValueError,
        SyntaxError,
        UnidentifiedImageError,
        Image.DecompressionBombError,
    ) as problem:
        raise FileRejected(Reason.CORRUPT_IMAGE, f"picture {number} of a TIFF: {problem}") from problem
    return buffer.getvalue()
