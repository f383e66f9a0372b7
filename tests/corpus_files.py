"""Files of corpora that tests write: pictures, tars and crawls."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from PIL import Image
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter


def flat(shade: int, form: str = "PNG") -> bytes:
    """Return a small picture of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), (shade, 255 - shade, 128)).save(buffer, form)
    return buffer.getvalue()


@cache
def jpeg(seed: int) -> bytes:
    """Return a JPEG of noise, 60 + seed pixels wide: another one in each run of the tests."""
    buffer = io.BytesIO()
    Image.effect_noise((60 + seed, 48), 40 + seed).convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()


Files = Mapping[str, bytes] | Iterable[tuple[str, bytes]]


def tar_of(files: Files, mode: str = "w") -> bytes:
    """Return a tar of files by their names; pairs may have a name twice."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items() if isinstance(files, Mapping) else files:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def write_tar(path: Path, files: Files) -> None:
    """Write a tar of files by their names."""
    path.write_bytes(tar_of(files))


def warc_of(answers: Mapping[str, tuple[str, bytes]], *, gzip: bool = True) -> bytes:
    """Return a crawl of answers, media type and body by URL, as warcio writes it."""
    stream = io.BytesIO()
    writer = WARCWriter(stream, gzip=gzip)
    for url, (kind, body) in answers.items():
        headers = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.1")
        record = writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=headers)
        writer.write_record(record)
        record.raw_stream.close()
    return stream.getvalue()


def write_warc(path: Path, answers: Mapping[str, tuple[str, bytes]]) -> None:
    """Write a compressed crawl of answers."""
    path.write_bytes(warc_of(answers))
