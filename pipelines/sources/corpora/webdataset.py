"""WebDataset's tars: a picture with its caption, or a document of several pictures.

    00012.tar   000120007.jpg  000120007.txt  000120007.json    a pair: what has one key is a sample (img2dataset)
    00012.tar   doc7.json  doc7.tiff                            a document: `texts` and `images` in its JSON (MINT-1T)

A key is a file's name up to its first dot, wherever in the tar its files stand. Where that puts several texts together,
a file goes with the text of the longest name that its own begins with, and files that are then left over, with those of
the same name in another folder:

    2021.05.01.jpg  2021.05.01.txt  2021.05.02.jpg ..    two samples
    dog.jpg  dog.jpg.txt                                 one
    images/7.jpg .. texts/7.txt                          one
    7.jpg  7.jpg  7.txt                                  two: a writer that began again appended the second

Folders are put together by kind alone: no text is below that of the pictures, and no picture below that of the texts.

A caption is `KEY.txt`, else `caption` or `text` of the JSON. In a document `images` are null where a text stands, else
the name of a file of the tar, or of the sample (`0.jpg` of `doc7.0.jpg`), or any other token: then the sample's only
picture is meant, and of a TIFF with several the next.

A pair is one sentence and one picture, and the link between them is known; of several pictures with one caption it is
not. The Parquet files that img2dataset writes are read as `hf`.
"""

import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from pipelines.files import (
    COMPRESSED,
    INSIDE,
    MAX_FILE_BYTES,
    BrokenInputError,
    file_errors,
    file_names,
    open_uri,
    tar_members,
)
from pipelines.named_files import is_picture, read_named, read_span
from pipelines.sources.corpora.compose import (
    EXTRAS,
    Piece,
    Reading,
    compose,
    document_of,
    in_document_order,
    parallel,
    value_of,
)
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    json_object,
    outcomes_of,
    rejected,
    sentence,
    utf8,
)
from schemas.documents import Link, Role
from schemas.failures import Failure, Reason
from schemas.tables import clean

_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)
_CAPTIONS = ("caption", "txt", "text", "TEXT")
_NOT_READ = (".heic", ".heif", ".jxl", ".jp2", ".svg", ".psd", ".dng", ".raw")  # pictures, by their names


class Member(NamedTuple):
    """A file of an archive: its name, where it is in the archive, and what reads it."""

    name: str
    place: str
    read: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Sample:
    """The files of one key, by their names."""

    key: str
    files: Mapping[str, Member]

    @property
    def pictures(self) -> list[Member]:
        """Return its pictures."""
        return [file for name, file in self.files.items() if is_picture(name)]

    def text(self, extension: str) -> bytes | None:
        """Return the bytes of its file with an extension, which is a text.

        Raises:
            FileRejected: they cannot be read.
        """
        file = next((file for name, file in self.files.items() if _extension(name) == extension), None)
        return None if file is None else file.read()

    def named(self, token: str) -> Member | None:
        """Return its file of a name, or of what follows its key and a dot."""
        begins = f"{self.key}.".lower()
        of_key = (file for name, file in self.files.items() if name.lower() == begins + token.lower())
        return self.files.get(token) or next(of_key, None)


def _extension(name: str) -> str:
    return name.rpartition(".")[2].lower()


def read_webdataset(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a shard."""
    stem = str(PurePosixPath(reading.place(shard)).with_suffix(""))
    if shard.lower().endswith(COMPRESSED):
        expected = "expected a tar that is not compressed, to find its pictures in; unpack it"
        raise BrokenInputError(f"{PurePosixPath(shard).name}: {expected}", PurePosixPath(shard).name)
    members, problem = _members(shard)
    samples = _samples(members)
    read = partial(_obelics_outcomes, reading=reading, tar=reading.address(shard))
    yield from outcomes_of(((f"{stem}/{sample.key}", sample) for sample in samples), read)
    if problem is not None:
        raise problem


def _members(shard: str) -> tuple[list[Member], BrokenInputError | None]:
    """Return the files of an archive, and why there are no more of them where it is damaged."""
    read = partial(read_named, shard, max_bytes=MAX_FILE_BYTES, extensions=())
    if not shard.lower().endswith(".tar"):
        return [Member(name, name, partial(read, name)) for name in file_names(shard)], None
    spans: list[tuple[str, int, int]] = []
    problem = None
    try:
        with file_errors(shard), open_uri(shard) as stream, tarfile.open(fileobj=stream, errors="replace") as tar:
            for each in tar_members(tar):
                spans.append((each.name.removeprefix("./"), each.offset_data, each.size))
    except BrokenInputError as found:
        problem = found
    often = Counter(name for name, _, _ in spans)
    return [
        Member(
            name,
            name if often[name] == 1 else f"bytes={begin}-{begin + size - 1}",
            partial(read_span, shard, begin, size, MAX_FILE_BYTES),
        )
        for name, begin, size in spans
    ], problem


def _samples(members: Iterable[Member]) -> list[Sample]:
    """Return the samples of an archive in the order of their first files."""
    newest: dict[str, dict[str, Member]] = {}
    groups: list[tuple[str, dict[str, Member]]] = []
    for member in members:
        if match := _NAME.fullmatch(member.name):
            if match[1] not in newest or member.name in newest[match[1]]:
                newest[match[1]] = {}
                groups.append((match[1], newest[match[1]]))
            newest[match[1]][member.name] = member
    samples = _across_folders([sample for key, files in groups for sample in _parted(key, files)])
    seen = Counter[str]()
    for number, sample in enumerate(samples):
        seen[sample.key] += 1
        if seen[sample.key] > 1:
            samples[number] = Sample(f"{sample.key}~{seen[sample.key]}", sample.files)
    return samples


def _parted(key: str, files: Mapping[str, Member]) -> Iterator[Sample]:
    """Yield the samples in the files of one key: each text with those whose names begin with its own.

    They are one where every picture is called by the key alone: 7.jpg 7.metadata.json.
    """
    stems = {name.rpartition(".")[0] for name in files if _extension(name) == "txt"}
    if f"{key}.json" not in files:
        stems |= {name.rpartition(".")[0] for name in files if _extension(name) == "json"}
    if {name.rpartition(".")[0] for name in files if is_picture(name)} == {key}:
        stems = set()
    parts: dict[str, dict[str, Member]] = {}
    for name, file in files.items():
        begins = name
        while stems - {key} and begins and begins not in stems:
            begins = begins.rpartition(".")[0]
        stem = begins or name.rpartition(".")[0]
        parts.setdefault(stem if stems - {key} else key, {})[name] = file
    return (Sample(stem, part) for stem, part in parts.items())


def _across_folders(samples: list[Sample]) -> list[Sample]:
    """Return samples; one of pictures alone has the texts of the one whose name differs in one folder alone.

    Several pictures of one key are taken apart where that lets one of them have its text.
    """
    joined = _joined(samples)
    apart = [Sample(stem, files) for sample in joined for stem, files in _by_stem(sample).items()]
    again = _joined(apart)
    return again if len(again) < len(apart) else joined


def _by_stem(sample: Sample) -> dict[str, dict[str, Member]]:
    """Return the files of a sample by its key, or where they are pictures alone each by its own name."""
    found: dict[str, dict[str, Member]] = {}
    for name, file in sample.files.items():
        is_alone = len(sample.pictures) == len(sample.files)
        found.setdefault(name.rpartition(".")[0] if is_alone else sample.key, {})[name] = file
    return found


def _joined(samples: list[Sample]) -> list[Sample]:
    names = [name for sample in samples for name in sample.files]
    telling = _folders(name for name in names if _extension(name) in ("txt", "json"))
    showing = _folders(name for name in names if is_picture(name) or name.lower().endswith(_NOT_READ))
    alone = [sample for sample in samples if not {"txt", "json"} & set(map(_extension, sample.files))]
    texts = [sample for sample in samples if not sample.pictures]
    joined: dict[int, Sample | None] = {}
    for place in range(-2, -6, -1):  # the last folder first
        shown, told = (
            _by_name([each for each in some if id(each) not in joined], place, barred)
            for some, barred in ((alone, telling), (texts, showing))
        )
        for name in shown.keys() & told.keys():
            (picture, *others), (text, *more) = shown[name], told[name]
            if not others and not more:
                joined |= {id(picture): Sample(picture.key, {**picture.files, **text.files}), id(text): None}
    whole = (joined.get(id(sample), sample) for sample in samples)
    return [sample for sample in whole if sample is not None]


def _folders(names: Iterable[str]) -> set[str]:
    """Return every folder that some files are below."""
    return {name[:end] for name in names for end, sign in enumerate(name) if sign == "/"}


def _by_name(samples: Iterable[Sample], place: int, barred: set[str]) -> dict[tuple[str, ...], list[Sample]]:
    """Return samples by the parts of their names, without the folder at a place from the end, which is not barred."""
    named: dict[tuple[str, ...], list[Sample]] = {}
    for sample in samples:
        parts = sample.key.split("/")
        if len(parts) >= -place and "/".join(parts[: place + 1]) not in barred:
            named.setdefault((*parts[:place], *parts[place + 1 :]), []).append(sample)
    return named


def _obelics_outcomes(
    sample: Sample, record_id: str, *, reading: Reading, tar: str
) -> Iterator[CandidateDocument | Failure]:
    told, written = sample.text("json"), sample.text("txt")
    about = {} if told is None else json_object(told)
    if isinstance(about, FieldError):
        if written is None:
            raise about
        about = {}  # a picture's description
    url = about.get("url") if isinstance(about.get("url"), str) else None
    if isinstance(about.get("texts"), list):
        pieces = list(_obelics_pieces(about, sample, f"{tar}{INSIDE}"))
        extras = value_of(about.get(EXTRAS))
        if extras is not None:
            pieces = in_document_order(pieces, about.get("image_index"))
        yield from compose(pieces, reading, record_id, url=url, extras=extras)
        return
    caption = next((text for name in _CAPTIONS if isinstance(text := about.get(name), str)), None)
    caption = caption if written is None else utf8(written)
    if not sample.pictures or caption is None:
        wanted = "a caption" if sample.pictures else "a picture"
        raise FieldError(
            Reason.MISSING_FIELD,
            f"expected {wanted}, found {', '.join(sample.files)[:400]}; the files of a sample have one name up to the "
            "first dot and follow each other after tar --sort=name",
        )
    yield from captioned(
        caption, [CandidateImage(f"{tar}{INSIDE}{each.place}", url) for each in sample.pictures], reading, record_id
    )


def captioned(
    caption: str, pictures: Sequence[CandidateImage], reading: Reading, record_id: str
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of pictures and their caption; of a single one the link is known."""
    text = sentence(clean(caption), Role.CAPTION)
    if not text.text:
        yield rejected(record_id, Reason.EMPTY_SENTENCE, "its caption is blank")
        return
    links = (Link(0, 0),) if len(pictures) == 1 else None
    yield from document_of([text], pictures, reading, record_id, url=pictures[0].source, links=links)


def _obelics_pieces(about: Mapping[str, Any], sample: Sample, tar: str) -> Iterator[Piece]:
    """Yield the texts and pictures of a document in their order."""
    images, texts = parallel(about, Any)
    names = _names([image for image in images if image is not None], sample)
    for text, image in zip(texts, images, strict=True):
        if image is not None:
            yield CandidateImage(f"{tar}{next(names)}")
        if text is not None:
            yield f"{text}\n"


def _names(tokens: Iterable[object], sample: Sample) -> Iterator[str]:
    """Yield the place in the tar that each token of `images` names."""
    pictures, frames = sample.pictures, count()
    texts = [clean(str(token)) for token in tokens]
    several = [text for text in texts if sample.named(text) is None]
    for text in texts:
        if (file := sample.named(text)) is not None:
            yield file.place
        elif not pictures or is_picture(text):
            yield text
        elif len(several) > 1 and pictures[0].name.lower().endswith((".tif", ".tiff")):
            yield f"{pictures[0].place}{INSIDE}{next(frames)}"
        else:
            yield pictures[0].place
