"""The address of a picture: one text, what it may say, and its bytes where it names a file.

    https://host/1.jpg            Web: fetched
    pictures/1.jpg                File: of a folder, a tar or a zip (`named_files.py`), or `ARCHIVE!/MEMBER` below it
    x.parquet!/image/12           Cell: a column and a row of a table, from 0
    x.arrow!/images/12/3          Cell: of a cell that is a list, one item
    crawl.warc.gz!/29381          Record: the answer in the record at this byte
    x.tar!/k.tiff!/2              Frame: the third picture of a TIFF, as a PNG
    x.bin!/bytes=1000-1999        Span: a range of bytes, first and last, as in HTTP
    page.html!/base64=90-4099     Span: a range of text in base64, of a `data:` address
    row:17                        FeatureRow: of a released feature array: an image without pixels
    unusable:<reason>:<why>       Unusable: a record names no address for it

The name of a file is relative to a root: what is below another root has the same address.
"""

import base64
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pipelines.files import INSIDE, MAX_FILE_BYTES, BrokenInputError
from pipelines.named_files import FileRejected, path_below, read_named, read_span
from pipelines.tables import is_table, read_cell
from pipelines.warc import is_warc, read_body
from schemas.failures import Reason

_WEB = ("http://", "https://")
_UNUSABLE, _ROW = "unusable:", "row:"
_TIFF = (".tif", ".tiff")
_SPAN = re.compile(r"(bytes|base64)=(\d{1,18})-(\d{1,18})")
_NO_NAME = re.compile(f"{_UNUSABLE}|{_ROW}|data:|javascript:|[a-z][a-z0-9+.-]*://|.*[\x00-\x1f\x7f]", re.IGNORECASE)
_MAX_PIXELS = 100_000_000  # of a picture of a TIFF, before it is decoded


class Web(NamedTuple):
    url: str


class File(NamedTuple):
    name: str


class Cell(NamedTuple):
    """A picture in a table; in a cell that is a list, its item."""

    table: str
    column: str
    row: int
    item: int | None = None

    def __str__(self) -> str:
        return f"{self.table}{INSIDE}{self.column}/{self.row}" + ("" if self.item is None else f"/{self.item}")


class Record(NamedTuple):
    """An answer in a WARC, by the first byte of its record."""

    warc: str
    offset: int


class Frame(NamedTuple):
    """One of the pictures of a TIFF, from 0."""

    tiff: str
    number: int


class Span(NamedTuple):
    """Some bytes of a file, or what they spell in base64."""

    file: str
    begin: int
    size: int
    is_base64: bool = False

    def __str__(self) -> str:
        unit = "base64" if self.is_base64 else "bytes"
        return f"{self.file}{INSIDE}{unit}={self.begin}-{self.begin + self.size - 1}"


class FeatureRow(NamedTuple):
    number: int


class Unusable(NamedTuple):
    reason: Reason
    why: str

    def __str__(self) -> str:
        return f"{_UNUSABLE}{self.reason}:{self.why}"


Address = Web | File | Cell | Record | Frame | Span | FeatureRow | Unusable


def parse_address(address: str) -> Address:
    """Return what an address says; `Unusable` of one that is malformed.

    >>> parse_address("x.arrow!/images/12/3")
    Cell(table='x.arrow', column='images', row=12, item=3)
    """
    if on_web(address):
        return Web(address)
    if address.startswith(_UNUSABLE):
        reason, _, why = address.removeprefix(_UNUSABLE).partition(":")
        return Unusable(Reason(reason), why)
    if address.startswith(_ROW):
        digits = address.removeprefix(_ROW)
        is_number = digits.isascii() and digits.isdigit()
        return FeatureRow(int(digits)) if is_number else _malformed(address, "row:NUMBER", Reason.FEATURE_MISSING)
    outer, is_inside, last = address.rpartition(INSIDE)
    if not is_inside:
        return File(address)
    if last.isdecimal() and (outer.lower().endswith(_TIFF) or INSIDE in outer):
        return Frame(outer, int(last))
    if span := _SPAN.fullmatch(last):
        begin, end = map(int, span.groups()[1:])
        return Span(outer, begin, max(0, end - begin + 1), span[1] == "base64")
    if is_table(outer):
        column, *numbers = last.split("/")
        is_cell = 1 <= len(numbers) <= 2 and all(number.isdecimal() for number in numbers)
        return Cell(outer, column, *map(int, numbers)) if is_cell else _malformed(last, "COLUMN/ROW or COLUMN/ROW/ITEM")
    if is_warc(outer):
        return Record(outer, int(last)) if last.isdecimal() else _malformed(last, "the first byte of a record")
    return File(address)


def _malformed(text: str, expected: str, reason: Reason = Reason.NOT_FOUND) -> Unusable:
    return Unusable(reason, f"{text}: expected {expected}")


def on_web(address: str) -> bool:
    """Return whether an address is an http or https URL, by its beginning."""
    return address[:8].lower().startswith(_WEB)


def is_file_name(address: str) -> bool:
    """Return whether an address that somebody else wrote may be the name of a file: it is of no other kind."""
    return _NO_NAME.match(address) is None


def read_picture(root: str, address: str, *, max_bytes: int) -> bytes:
    """Return the bytes of a picture that is at hand.

    Args:
        root: folder, tar or zip.
        address: relative to it.
        max_bytes: a larger one is refused.

    Raises:
        FileRejected: there is none, it is outside the root, too large, or cannot be read.
        ConfigError: an archive on the way cannot be read by name.
    """
    match parse_address(address):
        case Unusable(reason, why):
            raise FileRejected(reason, why)
        case Frame(tiff, number):
            return _frame(read_picture(root, tiff, max_bytes=max_bytes), number)
        case Span(file, begin, size, is_base64=True):
            page = read_named(root, file, max_bytes=MAX_FILE_BYTES, extensions=())
            with _damage(address):
                data = base64.b64decode(page[begin : begin + size])
        case Span(file, begin, size):
            data = read_span(path_below(root, file), begin, size, max_bytes + 1)
        case Cell(table, column, row, item):
            with _damage(address):
                data = read_cell(path_below(root, table), column, row, item)
        case Record(warc, offset):
            with _damage(address):
                data = read_body(path_below(root, warc), offset, max_bytes)
        case _:
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
    except (BrokenInputError, ValueError) as problem:
        raise FileRejected(Reason.CORRUPT_IMAGE, f"{address}: {problem}") from problem


def _frame(data: bytes, number: int) -> bytes:
    """Return one of the pictures of a TIFF, from 0, as a PNG."""
    from PIL import Image, UnidentifiedImageError  # here: a command that reads no picture starts without it

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
