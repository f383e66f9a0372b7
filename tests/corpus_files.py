"""Files of corpora that tests write: pictures, tars and crawls; and what is read of them."""

import io
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from candidates import names, parted, uris_of
from picture_files import file_of
from PIL import Image
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pipelines.embedded import read_picture
from pipelines.settings import HttpConfig
from pipelines.sources.datasets.corpora import CorpusSource
from pipelines.sources.records import CandidateDocument
from pipelines.sources.source import find_inputs, image_root


def flat(shade: int, form: str = "PNG") -> bytes:
    """Return a small picture of one colour."""
    return file_of(Image.new("RGB", (40, 30), (shade, 255 - shade, 128)), form)


def tiff_of(*shades: int) -> bytes:
    """Return a TIFF of small pages, each of another red."""
    first, *others = (Image.new("RGB", (20, 20), (shade, 0, 0)) for shade in shades)
    return file_of(first, "TIFF", save_all=True, append_images=others)


@cache
def jpeg(seed: int) -> bytes:
    """Return a JPEG of noise, 60 + seed pixels wide: another one in each run of the tests."""
    return file_of(Image.effect_noise((60 + seed, 48), 40 + seed).convert("RGB"), "JPEG")


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


class Read:
    """The outcomes of a corpus: its documents, its failures as `<id> <reason>`, and the pictures of a document."""

    def __init__(self, path: Path, form: Any, *, http: HttpConfig | None = None, **settings: Any) -> None:
        source = find_inputs(CorpusSource(format=form, documents=(str(path),), **settings), Path)
        context: Any = SimpleNamespace(http=http or HttpConfig())
        self.root = image_root(source)
        self.drafts, failures = parted(
            found for shard in source.shards() for found in source.read_shard(shard, context)
        )
        self.failures = names(failures)

    def pictures(self, draft: CandidateDocument) -> list[bytes]:
        return [read_picture(self.root, uri, max_bytes=10**6) for uri in uris_of(draft)]

    @property
    def texts(self) -> list[list[str]]:
        return [[sentence.text for sentence in draft.sentences] for draft in self.drafts]
