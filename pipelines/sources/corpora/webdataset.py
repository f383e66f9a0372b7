"""WebDataset's tars, and what img2dataset writes: a picture with its caption, or a document of several pictures.

    00012.tar   000120007.jpg  000120007.txt  000120007.json    a pair: what has one key is a sample
    00012.tar   doc7.json  doc7.tiff                            a document: `texts` and `images` in its JSON (MINT-1T)
    00012.parquet                                               img2dataset's table: url, caption, key, status
    00012/000120007.jpg ..                                      its pictures where it wrote files; else they are fetched

A key is a file's name up to its first dot. A caption is `KEY.txt`, else `caption` or `text` of the JSON. In a document
`images` are null where a text stands, else the name of a file of the tar, or of the sample (`0.jpg` of `doc7.0.jpg`),
or any other token: then the sample's only picture is meant, and of a TIFF with several the next.

A pair is one sentence and one picture, and the link between them is known. Pictures that img2dataset could not fetch
are failures with its message.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from pipelines.files import COMPRESSED, INSIDE, MAX_FILE_BYTES, BrokenInputError, file_errors, tree_files
from pipelines.named_files import EXTENSIONS
from pipelines.sources.corpora.compose import Picture, Piece, Reading, compose, document_of
from pipelines.sources.corpora.obelics import in_document_order
from pipelines.sources.corpora.rows import Row, read_rows
from pipelines.sources.records import (
    CandidateDocument,
    FieldError,
    checked,
    json_object,
    outcomes_of,
    rejected,
    required,
    sentence,
    text_or_none,
    utf8,
)
from pipelines.tables import is_table, read_schema
from schemas.corpora import EXTRAS, Parallel
from schemas.documents import Link, Role
from schemas.failures import Failure, Reason
from schemas.lake import Folder
from schemas.tables import clean

_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)
_PICTURES = frozenset(extension.lower().lstrip(".") for extension in EXTENSIONS) | {"tif", "tiff", "bmp", "avif"}
_CAPTIONS = ("caption", "txt", "text", "TEXT")
_FETCHED = ("key", "url", "status", "error_message", *_CAPTIONS)


@dataclass(slots=True)
class Sample:
    """The files of one key.

    Attributes:
        members: their names in the tar by their extensions, in order.
        texts: what is in those that are no pictures: `json` and `txt`.
    """

    members: dict[str, str] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)

    @property
    def pictures(self) -> list[str]:
        """Return the names of its pictures."""
        return [name for extension, name in self.members.items() if extension.rpartition(".")[2] in _PICTURES]


def read_webdataset(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a shard."""
    stem = str(PurePosixPath(reading.place(shard)).with_suffix(""))
    if is_table(shard):
        yield from _table(shard, stem, reading)
        return
    if shard.lower().endswith(COMPRESSED):
        name = PurePosixPath(shard).name
        raise BrokenInputError(
            f"{name}: expected a tar that is not compressed, to find its pictures in; unpack it", name
        )
    read = partial(_outcomes, reading=reading, tar=reading.address(shard))
    yield from outcomes_of(((f"{stem}/{key}", sample) for key, sample in _samples(shard)), read)
    beside = Path(shard).with_suffix(".parquet")
    if beside.is_file() and {"key", "status"} <= set(read_schema(str(beside)).names):
        yield from outcomes_of(read_rows(str(beside), stem, _FETCHED), partial(_failed, stem=stem))


def _samples(shard: str) -> Iterator[tuple[str, Sample]]:
    """Yield each sample of a tar with its key; its files stand together."""
    key, sample = "", Sample()
    for name, open_file in tree_files(shard):
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        if match[1] != key and sample.members:
            yield key, sample
            sample = Sample()
        key, extension = match[1], match[2].lower()
        sample.members[extension] = name
        if extension in ("json", "txt"):
            with file_errors(shard), open_file() as stream:
                sample.texts[extension] = stream.read(MAX_FILE_BYTES)
    if sample.members:
        yield key, sample


def _outcomes(sample: Sample, record_id: str, *, reading: Reading, tar: str) -> Iterator[CandidateDocument | Failure]:
    about = json_object(sample.texts["json"]) if "json" in sample.texts else {}
    if isinstance(about, FieldError):
        raise about
    url = about.get("url") if isinstance(about.get("url"), str) else None
    if isinstance(about.get(Parallel.TEXTS), list):
        pieces = list(_pieces(about, sample, f"{tar}{INSIDE}"))
        extras = about.get(EXTRAS)
        if extras is not None:
            pieces = in_document_order(pieces, about.get(Parallel.IMAGE_INDEX))
            extras = checked(extras, dict, EXTRAS)
        yield from compose(pieces, reading, record_id, url=url, extras=extras)
        return
    if "txt" in sample.texts:
        caption = utf8(sample.texts["txt"])
    else:
        caption = next((text for name in _CAPTIONS if isinstance(text := about.get(name), str)), "")
    names = sample.pictures
    if not names:
        raise FieldError(Reason.MISSING_FIELD, f"expected a picture, found {', '.join(sample.members)}")
    yield from pair(caption, Picture(f"{tar}{INSIDE}{names[0]}", url), reading, record_id)


def pair(caption: str, picture: Picture, reading: Reading, record_id: str) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of a picture and its caption, whose link is known."""
    text = sentence(clean(caption), Role.CAPTION)
    if not text.text:
        yield rejected(record_id, Reason.EMPTY_SENTENCE, "its caption is blank")
        return
    yield from document_of([text], [picture], reading, record_id, url=picture.source, links=(Link(0, 0),))


def _pieces(about: Mapping[str, Any], sample: Sample, tar: str) -> Iterator[Piece]:
    """Yield the texts and pictures of a document in their order."""
    texts, images = required(about, Parallel.TEXTS, list), required(about, Parallel.IMAGES, list)
    if len(texts) != len(images):
        found = f"{len(images)} images and {len(texts)} texts"
        raise FieldError(Reason.BROKEN_RECORD, f"expected parallel lists, found {found}")
    names = _names([image for image in images if image is not None], sample)
    for text, image in zip(texts, images, strict=True):
        if image is not None:
            yield Picture(f"{tar}{next(names)}")
        if text is not None:
            yield f"{checked(text, str, 'a text')}\n"


def _names(tokens: Iterable[object], sample: Sample) -> Iterator[str]:
    """Yield the place in the tar that each token of `images` names."""
    pictures, frames = sample.pictures, count()
    texts = [clean(str(token)) for token in tokens]
    several = [text for text in texts if text not in sample.members and text not in sample.members.values()]
    for text in texts:
        if text.lower() in sample.members:
            yield sample.members[text.lower()]
        elif text in sample.members.values() or not pictures or text.rpartition(".")[2].lower() in _PICTURES:
            yield text
        elif len(several) > 1 and pictures[0].lower().endswith((".tif", ".tiff")):
            yield f"{pictures[0]}{INSIDE}{next(frames)}"
        else:
            yield pictures[0]


def _table(shard: str, stem: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the pairs of img2dataset's table, whose pictures are in it or in the folder of its name."""
    there = read_schema(shard).names
    held = next((name for name in there if name in _PICTURES), None)
    where = reading.address(shard)
    folder = where.removesuffix(".parquet")
    is_beside = Folder(shard.removesuffix(".parquet")).is_folder()

    def read(numbered: Row, record_id: str) -> Iterator[CandidateDocument | Failure]:
        number, row = numbered
        if row.get("status", "success") != "success":
            yield from _failed(numbered, record_id, stem=stem)
            return
        caption = next((text for name in _CAPTIONS if isinstance(text := row.get(name), str)), "")
        key, url = required(row, "key", str), text_or_none(row, "url")
        address = f"{where}{INSIDE}{held}/{number}" if held else f"{folder}/{key}.jpg"
        picture = Picture(address, url) if held or is_beside or url is None else Picture(url)
        yield from pair(caption, picture, reading, f"{stem}/{key}")

    if "key" not in there:
        raise BrokenInputError(f"{stem}: expected the column key, found {', '.join(there)}", PurePosixPath(shard).name)
    yield from outcomes_of(read_rows(shard, reading.place(shard), _FETCHED), read)


def _failed(numbered: Row, record_id: str, *, stem: str) -> Iterator[Failure]:
    """Yield why img2dataset has no picture of a row, where it has none."""
    row = numbered[1]
    status = row.get("status")
    if status in (None, "success"):
        return
    reason = Reason.CORRUPT_IMAGE if status == "failed_to_resize" else Reason.NOT_FOUND
    yield rejected(
        f"{stem}/{row.get('key') or record_id}", reason, f"img2dataset: {row.get('error_message') or status}"
    )
