"""Corpora of the web: a data set for each format, whose shards a module of `pipelines.sources.corpora` reads.

    mmc4 (JSON Lines)   obelics (Parquet)   interleaved (Parquet, tar)   webdataset (tar)   hf (Parquet, Arrow)
    tables (CSV, TSV, Parquet, JSON)   web (WARC, WACZ)

Every shard is read by one worker, from front to back, so that as many workers as there are shards have work.

Tables of texts and pictures: data sets of Hugging Face on disk, and lists of addresses and texts.

    data-00000-of-00004.arrow            {"image": {"bytes": <bytes>, "path": "1.jpg"}, "text": "A cat."}
    train-00000-of-00002.parquet         {"images": [{"bytes": .., "path": ..}, null], "texts": [null, "A cat."]}
    part.csv, part.tsv                   url,caption     as img2dataset takes them
    metadata.csv, metadata.jsonl         file_name,text  of a folder of pictures
    00000.parquet                        img2dataset's {"jpg": <bytes>, "caption": .., "key": .., "url": ..,
                                                        "status": "success", "error_message": null}
    llava.json                           [{"id": "1", "image": "1.jpg", "conversations": [{"from": .., "value": ".."}]}]

A row is a document. Columns of texts and of pictures hold one value or a list; texts are sentences as they stand. Where
both are lists of one length with null in the other, they are in the order of a page; else it is not known where
pictures stand. A row of one text and one picture is a pair, whose link is known. A picture without bytes is at its
path: a URL, or below `source.images`, or beside the file where it is no table of types. Bytes may be text in base64.
A picture that img2dataset could not fetch is a failure with its message; without the bytes its URLs are asked.

A document has the id in the column `id` or `uid`; a number there, or a key, may be in every shard: it stands behind the
shard's path. A row without one has its number there, as `row-2` where others have ids. Exports of this project have a
column `multilink` (`compose.EXTRAS`), and come back whole.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Literal

from pipelines.embedded import Cell, on_web
from pipelines.files import BrokenInputError
from pipelines.named_files import is_picture
from pipelines.recipe import BuildConfig, without_limits
from pipelines.settings import HttpConfig
from pipelines.sources.corpora.compose import EXTRAS, Reading, document_of, restored, value_of
from pipelines.sources.corpora.interleaved import read_interleaved, read_mmc4, read_obelics
from pipelines.sources.corpora.web import read_web
from pipelines.sources.corpora.webdataset import read_webdataset
from pipelines.sources.fields import split_named, text_or_none, typed
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    outcomes_of,
    sentence,
    unusable,
)
from pipelines.sources.rows import Row, columns_of, read_rows
from pipelines.sources.source import (
    IMAGES,
    Context,
    Input,
    Language,
    Outcomes,
    Source,
    image_root,
    input_path,
    shard_root,
)
from pipelines.tables import is_table
from schemas.documents import UNDETERMINED, Link, Split
from schemas.failures import Failure, Reason

Format = Literal["mmc4", "obelics", "interleaved", "webdataset", "hf", "tables", "web"]
_PUBLISHED: Mapping[Format, tuple[str, ...]] = {
    "mmc4": ("*.jsonl", "*.jsonl.zip"),
    "obelics": ("*.parquet",),
    "interleaved": ("*.parquet", "*.tar"),
    "webdataset": ("*.tar",),
    "hf": ("!cache-*", "!indices.*", "*.arrow", "*.parquet"),  # those that `datasets` derived are none
    "tables": ("!*_stats.json", "*.csv", "*.tsv", "*.parquet", "*.jsonl", "*.json"),
    "web": ("*.warc", "*.wacz", "*.arc"),
}
_TEXT_COLUMNS = ("sentences", "texts", "text", "caption", "captions", "txt", "conversations")  # in whatever case
_PICTURE_COLUMNS = (
    "images", "image", "jpg", "png", "webp", "img", "picture", "image_base64", "url", "image_url", "file_name",
    "image_path",
)  # fmt: skip
# The beginnings of JPEG, PNG, GIF, WebP, BMP, TIFF, and AVIF: a path or the name of a file may be as long.
_BASE64 = re.compile(
    r"data:image/[\w.+-]+;base64,|(?:/9j/|iVBORw0KGgo|R0lGOD|UklGR|Qk[0-3]|SUkqA|TU0AK|AAAA)[A-Za-z0-9+/\s]{60}"
)
_ID_COLUMNS = ("id", "uid")
_KEY_COLUMNS = ("key", "__key__")  # of a shard
_FETCH_COLUMNS = {"url", "status", "error_message"}  # of img2dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSource(Source):
    """A corpus that another project published, or a crawl.

    Attributes:
        format: format of the shards.
        documents: paths of the shards, of the folders they are in, at whatever depth, or of a folder with a pattern of
            their names (`crawl/*.warc.gz`).
        images: folder or archive of pictures that a shard names and does not hold, or the URL of a folder; empty: the
            folder that all shards are in, except that mmc4 then fetches them from their own URLs.
        language: of the documents, where they do not say theirs.
        texts: of hf and tables: name of the column of texts; empty: the first of the usual ones.
        pictures: of hf and tables: name of the column of pictures; empty: likewise.
        keep_splits: of hf and tables: whether documents keep the split in their column `split`, or else in the name of
            their shard or its folder.
        skip_repeats: of mmc4: whether documents are left out whose page may be in the corpus twice, as the corpus
            states.
    """

    format: Format = "mmc4"
    documents: tuple[str, ...] = input_path(())
    images: str = input_path("")
    language: Language = UNDETERMINED
    texts: str = ""
    pictures: str = ""
    keep_splits: bool = True
    skip_repeats: bool = False

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        is_one_kind = self.format in ("hf", "interleaved", "tables")  # whose rows may also name files of the other kind
        return Input("documents", "shards", _PUBLISHED[self.format], is_needed=True, is_one_kind=is_one_kind), IMAGES

    def shards(self) -> tuple[str, ...]:
        """Return the paths of the shards."""
        return self.documents

    def read(self) -> Outcomes:
        """Yield the documents of all shards in order, and a failure for each that cannot be used."""
        for shard in self.documents:
            yield from self.read_shard(shard)

    def read_shard(self, shard: str, context: Context | None = None) -> Outcomes:
        """Yield the documents of a shard in order, and a failure for each that cannot be used.

        A document without an id of its own has that of its place: the shard's path below the folder that all shards
        are in, a colon, and its line or row.

        Raises:
            NotFoundError: there is no such file.
        """
        reading = Reading(
            dataset=self.format,
            root=image_root(self),
            shards=shard_root(self.documents),
            source=self,
            http=HttpConfig() if context is None else context.http,
        )
        try:
            for outcome in _READERS[self.format](shard, reading):
                yield _filed(outcome, shard, reading)
        except BrokenInputError as problem:
            yield _filed(problem.failure(), shard, reading)


def _filed(outcome: CandidateDocument | Failure, shard: str, reading: Reading) -> CandidateDocument | Failure:
    """Return an outcome; a failure that is filed under the name of its file, under that file's place."""
    name = PurePosixPath(shard).name
    if isinstance(outcome, Failure) and outcome.record_id.partition(":")[0] == name:
        return replace(outcome, record_id=reading.place(shard) + outcome.record_id.removeprefix(name))
    return outcome


def read_hf(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a shard."""
    there = columns_of(shard)
    texts = _column(shard, there, (reading.source.texts,) if reading.source.texts else _TEXT_COLUMNS, "texts")
    pictures = _column(
        shard, there, (reading.source.pictures,) if reading.source.pictures else _PICTURE_COLUMNS, "pictures"
    )
    path = PurePosixPath(shard)
    read = partial(
        _outcomes,
        reading=reading,
        shard=reading.address(shard),
        texts=texts,
        pictures=pictures,
        has_ids=not {*_ID_COLUMNS, *_KEY_COLUMNS}.isdisjoint(there),
        split=_split_of(path.name.partition("-")[0].partition(".")[0], path.parent.name),
    )
    columns = (texts, *_ID_COLUMNS, *_KEY_COLUMNS, "split", *sorted(_FETCH_COLUMNS - {pictures}), EXTRAS)
    if twice := ", ".join(name for name in (pictures, *columns) if there.count(name) > 1):
        raise BrokenInputError(f"{path.name}: expected one column of each name, found several of {twice}", path.name)
    yield from outcomes_of(read_rows(shard, reading.place(shard), columns, present=(pictures,)), read)


def _column(shard: str, there: Sequence[str], names: Sequence[str], what: str) -> str:
    spelt = {name.lower(): name for name in reversed(there)}
    found = next((spelt[name.lower()] for name in names if name.lower() in spelt), None)
    if found is None:
        name = PurePosixPath(shard).name
        columns = ", ".join(there) or "no object of JSON; a table of values ends in .csv or .tsv"
        hint = "; its first line has to name its columns" if any(map(on_web, there)) else ""
        raise BrokenInputError(f"{name}: expected a column {' or '.join(names)} of {what}, found {columns}{hint}", name)
    return found


def _split_of(*names: object) -> Split | None:
    """Return the split that the first of some names has which is that of one; None where none is."""
    for name in names:
        try:
            return split_named(str(name))
        except FieldError:
            continue
    return None


def _outcomes(
    numbered: Row,
    record_id: str,
    *,
    reading: Reading,
    shard: str,
    texts: str,
    pictures: str,
    has_ids: bool,
    split: Split | None,
) -> Iterator[CandidateDocument | Failure]:
    number, row = numbered
    is_fetched = row.keys() >= _FETCH_COLUMNS
    if is_fetched and row["status"] not in (None, "success"):
        reason = Reason.CORRUPT_IMAGE if row["status"] == "failed_to_resize" else Reason.NOT_FOUND
        raise FieldError(reason, f"img2dataset: {row['error_message'] or row['status']}")
    # The turns of a conversation that answer are what is said of the picture.
    asking = {"human", "user", "system"}
    words = [each for each in _items(row.get(texts)) if not isinstance(each, dict) or each.get("from") not in asking]
    shown = _items(row.get(pictures))
    is_list = isinstance(row.get(pictures), list)
    cells = (Cell(shard, pictures, number, item if is_list else None) for item in range(len(shown)))
    pairs = enumerate(zip(shown, cells, strict=True))
    found = {place: picture for place, (value, cell) in pairs if (picture := _picture(value, cell, reading))}
    cleaned = [_text(word) if word is not None else None for word in words]
    split = (_split_of(row.get("split")) or split) if reading.source.keep_splits else None
    if row.get(EXTRAS) is not None:
        whole = restored([*filter(None, cleaned), *found.values()], reading, record_id, value_of(row[EXTRAS]))
        yield replace(whole, split=whole.split or split)
        return
    ids = (row.get(name) for name in (*_ID_COLUMNS, *_KEY_COLUMNS))
    own = next((each for each in ids if isinstance(each, str | int) and str(each).strip()), None)
    is_of_all = isinstance(own, str) and not own.isdecimal() and any(row.get(name) == own for name in _ID_COLUMNS)
    if own is not None or has_ids:
        file, _, number_or_line = record_id.rpartition(":")
        record_id = str(own) if is_of_all else f"{file}:{f'row-{number_or_line}' if own is None else own}"
    sentences = [sentence((text or "").replace("<image>", " ")) for text in cleaned]
    kept_texts = [place for place, text in enumerate(sentences) if text.text]
    url = text_or_none(row, "url") if is_fetched else None
    if pictures != "url":
        found = {at: replace(image, source=url) for at, image in found.items()}
    if len(words) == len(shown) > 1 and not set(kept_texts) & found.keys():
        found = {at: replace(image, after=sum(text < at for text in kept_texts)) for at, image in found.items()}
    is_pair = len(kept_texts) == len(found) == 1 and not is_list
    yield from document_of(
        [sentences[place] for place in kept_texts],
        list(found.values()),
        reading,
        record_id,
        own=None if own is None else str(own),
        url=url,
        links=(Link(0, 0),) if is_pair else None,
        split=split,
        sentence_numbers=kept_texts,
        image_numbers=list(found),
    )


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: object) -> str:
    """Return a text, which may be in a field of an object: of a caption, or of a turn of a conversation."""
    if isinstance(value, dict):
        value = next((value[name] for name in ("text", "raw", "value") if name in value), None)
    return typed(value, str, "a text")


def _picture(value: object, cell: Cell, reading: Reading) -> CandidateImage | None:
    """Return a picture, whose bytes are in a cell or elsewhere; None where there is none."""
    if value is True or (isinstance(value, dict) and value.get("bytes")):
        return CandidateImage(str(cell))
    path = value.get("path") if isinstance(value, dict) else value
    if not isinstance(path, str) or not path:
        return None
    if _BASE64.match(path) and not is_picture(path[-9:]):
        problem = "a picture in base64 is read of Parquet and Arrow alone"
        return CandidateImage(
            str(cell) if is_table(cell.table) else unusable(FieldError(Reason.BROKEN_RECORD, problem))
        )
    is_beside = not (is_table(cell.table) or reading.source.images or on_web(path) or path.startswith("/"))
    return CandidateImage(str(PurePosixPath(cell.table).parent / path) if is_beside else path)


_READERS: Mapping[Format, Callable[[str, Reading], Iterator[CandidateDocument | Failure]]] = {
    "mmc4": read_mmc4,
    "obelics": read_obelics,
    "interleaved": read_interleaved,
    "webdataset": read_webdataset,
    "hf": read_hf,
    "tables": read_hf,
    "web": read_web,
}


def mmc4() -> BuildConfig:
    """MMC4: documents of sentences and pictures with CLIP's assignment, kept as a baseline (Zhu et al. 2023)."""
    return _corpus("mmc4", language="en")


def obelics() -> BuildConfig:
    """OBELICS, and MINT-1T's HTML documents: running text with pictures in the order of the page."""
    return _corpus("obelics", language="en")


def interleaved() -> BuildConfig:
    """NeMo Curator's interleaved rows, and MINT-1T's tars of documents."""
    return _corpus("interleaved")


def webdataset() -> BuildConfig:
    """Pictures with their captions in WebDataset's tars."""
    return _corpus("webdataset")


def hf() -> BuildConfig:
    """A data set of Hugging Face on disk, in Arrow or Parquet."""
    return _corpus("hf")


def tables() -> BuildConfig:
    """A table of addresses of pictures and their texts: CSV, TSV, Parquet or JSON."""
    return _corpus("tables")


def web() -> BuildConfig:
    """Pages in WARC files: main text and pictures in the order of the page."""
    return _corpus("web")


def _corpus(dataset: Format, **source: str) -> BuildConfig:
    """Return a build that keeps every document of a corpus; most of the links of an old one are dead."""
    return replace(
        without_limits(dataset, CorpusSource(format=dataset, **source)),  # type: ignore[arg-type]
        max_failure_share=0.95,
    )


RECIPES = {
    "mmc4": mmc4,
    "obelics": obelics,
    "interleaved": interleaved,
    "webdataset": webdataset,
    "hf": hf,
    "tables": tables,
    "web": web,
}
