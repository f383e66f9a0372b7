"""Records of WARC files, each on its own: a damaged one costs no other.

    crawl.warc        record | record | junk   | record        a record begins with `WARC/1.`
    crawl.warc.gz     member | member | damage | member        a member is a record (ISO 28500:2017, annex D)
    crawl.warc.zst    frame  | frame  | damage | frame         likewise

What cannot be read is left at the next beginning; damage that stands together is one row. fastwarc reads the inside of
a record. A body that does not begin as its headers say was stored without the chunks or the compression that they name,
as many archives do, and is taken as it stands.
"""

import contextlib
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal

from backports import zstd
from fastwarc import ArchiveIterator, WarcRecordType

from pipelines.files import BrokenInputError, file_errors, open_uri

SUFFIXES = (".warc", ".warc.gz", ".warc.zst")
MAX_RECORD_BYTES = 32 * 2**20  # of a record that are kept
_BEGIN = b"WARC/1."
_HEAD_BYTES = 2**16
_PIECE_BYTES = 2**20
_LOOK_BYTES = 2**18  # at what may be a beginning: more than a block of zstd, which gives nothing before it is whole
_MOST_TRIES = 10_000  # places that only look like a beginning; what follows so many is not looked at
_HEAD = re.compile(rb"WARC/1\.[^\r\n]*\r\n(?:[^\r\n][^\n]*\r\n)*")  # without the empty line behind it
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r\n", re.IGNORECASE)
_DECODINGS: tuple[Literal["all", "content", "transfer", "none"], ...] = ("all", "content", "transfer", "none")


@dataclass(frozen=True, slots=True)
class _Form:
    """How records stand in a file.

    Attributes:
        magic: what the file begins with.
        begin: what each record, or the member or frame that it is in, begins with.
        unpacker: decompresses a member; None: records are not compressed.
        piece_bytes: of a member that are read at once.
        look_bytes: of what may be a member, that it must give its first bytes by.
    """

    magic: bytes
    begin: re.Pattern[bytes]
    unpacker: Callable[[], Any] | None = None
    piece_bytes: int = 0
    look_bytes: int = 0

    def is_begun(self, data: bytes) -> bool:
        """Return whether bytes that look like a beginning are one."""
        if self.unpacker is None:
            return True
        with contextlib.suppress(zlib.error, zstd.ZstdError):
            return bool(self.unpacker().decompress(data[: self.look_bytes], len(_BEGIN)).startswith(_BEGIN))
        return False


_PLAIN = _Form(_BEGIN, re.compile(rb"WARC/1\.[^\r\n]{1,9}\r\n[A-Za-z][A-Za-z-]{0,63}:"))
_FORMS = (
    # Of a member's header: no reserved flag, a level, and a system that there is (RFC 1952, 2.3.1).
    _Form(
        b"\x1f\x8b\x08",
        re.compile(rb"\x1f\x8b\x08[\x00-\x1f].{4}[\x00\x02\x04][\x00-\x0d\xff]", re.DOTALL),
        lambda: zlib.decompressobj(31),
        2**16,
        2**10,
    ),
    # Of a frame's descriptor: bit 3 is reserved (RFC 8878, 3.1.1.1.1). Of a piece one byte can become 40,000.
    _Form(
        b"\x28\xb5\x2f\xfd",
        re.compile(rb"\x28\xb5\x2f\xfd[" + b"".join(b"\\x%02x" % each for each in range(256) if not each & 8) + b"]"),
        zstd.ZstdDecompressor,
        2**12,
        _LOOK_BYTES,
    ),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer over HTTP.

    Attributes:
        offset: of the first byte of its record in the file.
        url: that was asked for.
        headers: by names in lower case; of one that came several times, the values in a line each.
        record: as it is without the compression of its member; at most a byte more than MAX_RECORD_BYTES of it.
    """

    offset: int
    url: str
    status: int
    media_type: str
    headers: Mapping[str, str]
    record: bytes

    def body(self, most: int) -> bytes:
        """Return the body, or a byte more than `most` of it.

        Raises:
            ValueError: it is damaged behind its beginning, or cut off.
        """
        if len(self.record) > MAX_RECORD_BYTES:
            raise ValueError(f"expected a record of at most {MAX_RECORD_BYTES} bytes, found more")
        for decoding in _DECODINGS:
            with contextlib.suppress(OSError):  # what is stored is none of that
                reader = next(ArchiveIterator(io.BytesIO(self.record), auto_decode=decoding)).reader
                first = bytes(reader.read(1))
                break
        try:
            return first + bytes(reader.read(most))
        except OSError as problem:
            raise ValueError(f"its body cannot be read on: {problem}") from problem


def is_warc(name: str) -> bool:
    """Return whether a file is a WARC, by its name."""
    return name.lower().endswith(SUFFIXES)


def read_answers(uri: str) -> Iterator[Answer | BrokenInputError]:
    """Yield the answers over HTTP in a file in order, and what stands where there is no record.

    Raises:
        BrokenInputError: the file cannot be read on.
        NotFoundError: there is no such file.
    """
    name = PurePosixPath(uri).name
    with file_errors(uri), open_uri(uri) as stream:
        end, at = stream.seek(0, os.SEEK_END), 0
        form = _form(stream)
        damage: BrokenInputError | None = None
        while at < end:
            begin = at
            try:
                record, at = _read(stream, begin, form)
                answer = _answer(record, begin, at)
            except _DamagedError as problem:
                damage = damage or BrokenInputError(f"{name}: no record at byte {begin}: {problem}", f"{name}:{begin}")
                at = _next(stream, begin + 1, form) if problem.end is None else problem.end
                continue
            yield from filter(None, (damage, answer))
            damage = None
        yield from filter(None, [damage])


def read_body(uri: str, offset: int, most: int) -> bytes:
    """Return the body of the answer whose record begins at a byte of a file, or a byte more than `most` of it.

    Raises:
        ValueError: there is none, or it is damaged.
    """
    with open_uri(uri) as stream:
        record, end = _read(stream, offset, _form(stream))
    answer = _answer(record, offset, end)
    if answer is None:
        raise ValueError("expected an answer over HTTP")
    return answer.body(most)


class _DamagedError(ValueError):
    """No record is where one was looked for; `end` is where what stands there ends, None where that is not known."""

    def __init__(self, message: str, end: int | None = None) -> None:
        super().__init__(message)
        self.end = end


def _form(stream: BinaryIO) -> _Form:
    stream.seek(0)
    start = stream.read(4)
    return next((form for form in _FORMS if start.startswith(form.magic)), _PLAIN)


def _answer(record: bytes, offset: int, end: int) -> Answer | None:
    """Return the answer over HTTP in a record, None where it is none."""
    found = next(ArchiveIterator(io.BytesIO(record), record_types=WarcRecordType.response), None)
    if found is None or not found.is_http:
        return None
    if found.http_headers is None or found.http_headers.status_code is None:
        raise _DamagedError("expected the header of an answer over HTTP", end)
    headers = dict[str, str]()
    for name, value in found.http_headers:
        headers[name.lower()] = "\n".join(filter(None, [headers.get(name.lower()), value]))
    url = (found.headers.get("WARC-Target-URI") or "").strip("<>")
    return Answer(offset, url, found.http_headers.status_code, found.http_content_type or "", headers, record)


def _read(stream: BinaryIO, at: int, form: _Form) -> tuple[bytes, int]:
    """Return the record that begins at a byte, at most a byte more than is kept, and where the next one should."""
    if form.unpacker is None:
        return _plain(stream, at)
    try:
        data, end = _member(stream, at, form.unpacker(), form.piece_bytes)
    except (ValueError, zlib.error, zstd.ZstdError) as problem:
        raise _DamagedError(str(problem)) from problem
    length = _length(data, end)
    rest = data[length:].lstrip(b"\r\n")
    if rest.startswith(_BEGIN):
        raise _DamagedError("several records in one gzip member; recompress with one record a member", end)
    if len(data) <= MAX_RECORD_BYTES and (rest or length > len(data)):
        raise _DamagedError("its Content-Length differs from the length of its block", end)
    return data, end


def _plain(stream: BinaryIO, at: int) -> tuple[bytes, int]:
    stream.seek(at)
    data = stream.read(_HEAD_BYTES)
    head = _HEAD.match(data)
    inner = head[0].rfind(_BEGIN, 1) if head else -1  # of several beginnings in a row the last one may have a record
    length = _length(data, at + inner if inner > 0 else None)
    is_whole = at + length <= stream.seek(0, os.SEEK_END)
    stream.seek(at + length)
    behind = stream.read(16)
    rest = behind.lstrip(b"\r\n")
    if not is_whole or (rest and not rest.startswith(_BEGIN) and not behind.startswith(b"\r\n\r\n")):
        raise _DamagedError("its Content-Length differs from the length of its block")
    stream.seek(at)
    return stream.read(min(length, MAX_RECORD_BYTES + 1)), at + length + len(behind) - len(rest)


def _length(data: bytes, end: int | None = None) -> int:
    """Return how long the record is that data begin with, by its header."""
    head = _HEAD.match(data[:_HEAD_BYTES])
    found = _LENGTH.search(head[0]) if head else None
    if head is None or found is None or _BEGIN in head[0][1:] or not data.startswith(b"\r\n", head.end()):
        raise _DamagedError("expected a header with a Content-Length", end)
    return head.end() + 2 + int(found[1])


def _member(stream: BinaryIO, at: int, unpacker: Any, piece_bytes: int) -> tuple[bytes, int]:
    """Return what a member holds, at most a byte more than MAX_RECORD_BYTES, and where it ends."""
    stream.seek(at)
    kept = bytearray()
    while not unpacker.eof:
        piece = stream.read(piece_bytes)
        if not piece:
            raise ValueError("it ends early")
        kept += unpacker.decompress(piece)[: MAX_RECORD_BYTES + 1 - len(kept)]
    return bytes(kept), stream.tell() - len(unpacker.unused_data)


def _next(stream: BinaryIO, at: int, form: _Form) -> int:
    """Return where the next record begins, from a byte on; the end of the file where there is none."""
    stream.seek(at)
    window, tries, is_last = b"", 0, False
    while not is_last:
        piece = stream.read(_PIECE_BYTES)
        window, is_last = window + piece, len(piece) < _PIECE_BYTES
        through = len(window) if is_last else len(window) - _LOOK_BYTES
        for found in form.begin.finditer(window):
            if found.start() >= through:
                break
            if form.is_begun(window[found.start() : found.start() + _LOOK_BYTES]):
                return at + found.start()
            tries += 1
            if tries > _MOST_TRIES:
                return stream.seek(0, os.SEEK_END)
        at, window = at + through, window[through:]
    return at
