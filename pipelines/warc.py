"""Captures in WARC files, as any crawler writes them, by fastwarc; and a captured body by where its record begins.

    crawl.warc        record | record | record           WARC 0.17 to 1.1
    crawl.warc.gz     member | member | member           a member is a record (ISO 28500:2017, annex D)
    crawl.warc.zst    frame  | frame  | frame            likewise; a dictionary of all frames may stand before them
    crawl.wacz        a zip with such files in `archive/`, which are stored and not compressed again (WACZ 1.1.1)

`response` and `resource` records have a body, a `revisit` names the capture that has it. What stands behind damage
cannot be read. ARC files and files that are compressed as a whole are refused, with the command that converts them. A
body that does not begin as its headers say was stored without the chunks or the compression that they name, as many
archives do, and is taken as it stands.
"""

import contextlib
import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal, cast

from backports import zstd
from fastwarc import ArchiveIterator, WarcRecordType
from fastwarc.stream_io import ZstdReader

from pipelines.files import BrokenInputError, file_errors, open_uri

SUFFIXES = (".warc", ".warc.gz", ".warc.zst", ".wacz")
MAX_RECORD_BYTES = 32 * 2**20  # of a record that is read
_WITH_BODY = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.revisit
_DECODINGS: tuple[Literal["all", "content", "transfer", "none"], ...] = ("all", "content", "transfer", "none")
_DICTIONARY, _ZSTD = b"\x5d\x2a\x4d\x18", b"\x28\xb5\x2f\xfd"  # how frames begin
_LOCAL_HEADER = 30  # bytes of the header of a zip's member, before its name (APPNOTE 4.3.7)
_CONVERT = "convert it with `warcio recompress"


@dataclass(frozen=True, slots=True)
class Capture:
    """What a crawler was answered, or made of an answer.

    Attributes:
        offset: of the first byte of its record in the file.
        url: that was asked for.
        date: of the capture, in UTC; empty: not stated.
        status: of the answer; 200 of a resource.
        headers: by names in lower case; of one that came several times, the values in a line each.
        digest: of the payload; empty: not stated.
        original: of a revisit, URL of the capture that has the body, perhaps empty; None of any other record.
    """

    offset: int
    url: str
    date: str
    status: int
    headers: Mapping[str, str]
    digest: str
    original: str | None

    @property
    def media_type(self) -> str:
        """Return the type of its body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_warc(name: str) -> bool:
    """Return whether a file is a WARC or a WACZ, by its name."""
    return name.lower().endswith(SUFFIXES)


def read_captures(uri: str) -> Iterator[Capture | BrokenInputError]:
    """Yield the captures of a file in order; where it cannot be read on, and where it has none, an error at the end.

    Raises:
        NotFoundError: there is no such file.
    """
    name = PurePosixPath(uri).name
    kinds = Counter[str]()
    count = 0
    try:
        with file_errors(uri), open_uri(uri) as stream:
            size = stream.seek(0, os.SEEK_END)
            for begin, part in _parts(stream, name):
                for record in _records(part, name, size, begin):
                    kinds[str(record.record_type).rpartition(".")[2]] += 1
                    if (capture := _capture(record, begin)) is not None:
                        count += 1
                        yield capture
    except BrokenInputError as problem:
        yield problem
    else:
        if not count and kinds:
            there = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
            yield BrokenInputError(f"{name}: expected response, resource or revisit records, found {there}", name)


def read_body(uri: str, offset: int, most: int) -> bytes:
    """Return the body of the capture whose record begins at a byte of a file, or a byte more than `most` of it.

    Raises:
        ValueError: there is none, or it is damaged or cut off.
    """
    try:
        with open_uri(uri) as stream:
            record = _record_at(stream, offset, parse_http=False)
            if record.content_length > MAX_RECORD_BYTES:
                raise ValueError(
                    f"expected a record of at most {MAX_RECORD_BYTES} bytes, found {record.content_length}"
                )
            if len(record.reader.read(MAX_RECORD_BYTES)) < record.content_length:
                raise ValueError("it ends early")
            for decoding in _DECODINGS:
                with contextlib.suppress(OSError):  # what is stored is none of that
                    reader = _record_at(stream, offset, auto_decode=decoding).reader
                    first = bytes(reader.read(1))
                    break
            return first + bytes(reader.read(most))
    except (OSError, StopIteration) as problem:
        raise ValueError(f"its body cannot be read on: {problem}") from problem


def _record_at(stream: BinaryIO, offset: int, **how: Any) -> Any:
    dictionary = _dictionary(stream) if offset else b""
    stream.seek(offset)
    plain = ZstdReader(stream, dictionary=dictionary) if dictionary else stream
    return next(ArchiveIterator(plain, record_types=_WITH_BODY, **how))


def _dictionary(stream: BinaryIO) -> bytes:
    """Return what all frames of a file in zstd were compressed with: its first frame, a skippable one (IIPC 2021)."""
    stream.seek(0)
    magic, size = stream.read(4), int.from_bytes(stream.read(4), "little")
    found = stream.read(size) if magic == _DICTIONARY and size <= MAX_RECORD_BYTES else b""
    return zstd.decompress(found) if found.startswith(_ZSTD) else found


def _parts(stream: BinaryIO, name: str) -> Iterator[tuple[int, BinaryIO]]:
    """Yield the WARC files in a file, each with its first byte there: of a WACZ those in it, else the file itself."""
    stream.seek(0)
    if not name.lower().endswith(".wacz"):
        yield 0, stream
        return
    with zipfile.ZipFile(stream) as zipped:
        for entry in zipped.infolist():
            if is_warc(entry.filename):
                if entry.compress_type != zipfile.ZIP_STORED or entry.filename.endswith(".wacz"):
                    found = f"{name}: expected WARC files as they are in it, found {entry.filename} packed again"
                    raise BrokenInputError(f"{found}; unzip it, and name the files", name)
                stream.seek(entry.header_offset)
                head = stream.read(_LOCAL_HEADER)
                names = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
                with zipped.open(entry) as part:
                    yield entry.header_offset + _LOCAL_HEADER + names, cast(BinaryIO, part)


def _records(stream: BinaryIO, name: str, size: int, begin: int) -> Iterator[Any]:
    """Yield the records of a WARC file.

    Raises:
        BrokenInputError: it cannot be read on, or is of a form that has to be converted.
    """
    last = -1
    try:
        for record in ArchiveIterator(stream):
            if record.stream_pos <= last or begin + record.stream_pos >= size:
                message = "several records in one compressed member"
                raise BrokenInputError(f"{name}: {message}; {_CONVERT} {name} NEW.warc.gz`", name)
            last = record.stream_pos
            yield record
    except OSError as problem:
        stream.seek(0)
        if last < 0 and (stream.read(11) == b"filedesc://" or name.lower().removesuffix(".gz").endswith(".arc")):
            message = f"{name}: an ARC file; {_CONVERT} {name} NEW.warc.gz`"
            raise BrokenInputError(message, name) from problem
        where = f"behind the record at byte {begin + last}" if last >= 0 else "at all"
        raise BrokenInputError(f"{name}: it cannot be read {where}: {problem}", name) from problem


def _capture(record: Any, begin: int) -> Capture | None:
    """Return the capture in a record, None where it has none of the web."""
    kind, headers = record.record_type, record.headers
    if not kind & _WITH_BODY:
        return None
    is_resource = kind == WarcRecordType.resource
    answered: dict[str, str] = {}
    status = 200
    if is_resource:
        answered["content-type"] = headers.get("Content-Type") or ""
    elif record.is_http and record.http_headers is not None:
        for name, value in record.http_headers:
            answered[name.lower()] = "\n".join(filter(None, [answered.get(name.lower()), value]))
        status = record.http_headers.status_code or 0
    elif kind != WarcRecordType.revisit:
        return None  # of DNS, FTP
    url = (headers.get("WARC-Target-URI") or "").strip("<>")
    original = (headers.get("WARC-Refers-To-Target-URI") or "").strip("<>")
    return Capture(
        begin + record.stream_pos,
        url,
        record.record_date.isoformat() if record.record_date else "",
        status,
        answered,
        headers.get("WARC-Payload-Digest") or "",
        original if kind == WarcRecordType.revisit else None,
    )
