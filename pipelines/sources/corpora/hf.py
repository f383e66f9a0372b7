"""Tables of texts and pictures: data sets of Hugging Face on disk, and lists of addresses and texts.

    data-00000-of-00004.arrow            {"image": {"bytes": <bytes>, "path": "1.jpg"}, "text": "A cat."}
    train-00000-of-00002.parquet         {"images": [{"bytes": .., "path": ..}, null], "texts": [null, "A cat."]}
    part.csv, part.tsv                   url,caption     as img2dataset takes them
    metadata.csv, metadata.jsonl         file_name,text  of a folder of pictures
    llava.json                           [{"id": "1", "image": "1.jpg", "conversations": [{"from": .., "value": ".."}]}]

A row is a document. Columns of texts and of pictures hold one value or a list; texts are sentences as they stand. Where
both are lists of one length with null in the other, they are in the order of a page; else it is not known where
pictures stand. A row of one text and one picture is a pair, whose link is known. A picture without bytes is at its
path: a URL, or below `source.images`, or beside the file where it is no table of types. Bytes may be text in base64.

A document has the id in the column `id` or `uid`; a number there, or a key, may be in every shard: it stands behind the
shard's path. Exports of this project have a column `multilink` (`compose.EXTRAS`), and come back whole.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from pipelines.embedded import Cell, on_web
from pipelines.files import BrokenInputError
from pipelines.sources.corpora.compose import EXTRAS, Reading, document_of, restored, value_of
from pipelines.sources.fields import split_named, typed
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, outcomes_of, sentence, unusable
from pipelines.sources.rows import Row, columns_of, read_rows
from pipelines.tables import is_table
from schemas.documents import Link, Split
from schemas.failures import Failure, Reason

_TEXTS = ("sentences", "texts", "text", "caption", "captions", "txt", "TEXT", "conversations")
_PICTURES = (
    "images", "image", "jpg", "png", "webp", "img", "picture", "image_base64", "url", "URL", "image_url", "file_name",
    "image_path",
)  # fmt: skip
_BASE64 = re.compile(r"data:image/[\w.+-]+;base64,|[A-Za-z0-9+/]{100}")
_IDS = ("id", "uid")
_KEYS = ("key", "__key__")  # of a shard


def read_hf(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a shard."""
    there = columns_of(shard)
    texts = _column(shard, there, (reading.texts,) if reading.texts else _TEXTS, "texts")
    pictures = _column(shard, there, (reading.pictures,) if reading.pictures else _PICTURES, "pictures")
    read = partial(_outcomes, reading=reading, shard=reading.address(shard), texts=texts, pictures=pictures)
    records = read_rows(shard, reading.place(shard), (texts, *_IDS, *_KEYS, EXTRAS), present=(pictures,))
    split = _split_of(shard) if reading.keep_splits else None
    for outcome in outcomes_of(records, read):
        if isinstance(outcome, CandidateDocument) and outcome.split is None:
            yield replace(outcome, split=split)
        else:
            yield outcome


def _column(shard: str, there: Sequence[str], names: Sequence[str], what: str) -> str:
    found = next((name for name in names if name in there), None)
    if found is None:
        name = PurePosixPath(shard).name
        columns = ", ".join(there)
        raise BrokenInputError(f"{name}: expected a column {' or '.join(names)} of {what}, found {columns}", name)
    return found


def _split_of(shard: str) -> Split | None:
    """Return the split that a shard's name or its folder's begins with, as Hugging Face names them."""
    path = PurePosixPath(shard)
    for name in (path.name.partition("-")[0].partition(".")[0], path.parent.name):
        try:
            return split_named(name, "split")
        except FieldError:
            continue
    return None


def _outcomes(
    numbered: Row, record_id: str, *, reading: Reading, shard: str, texts: str, pictures: str
) -> Iterator[CandidateDocument | Failure]:
    number, row = numbered
    words = [word for word in _items(row.get(texts)) if not _is_question(word)]
    shown = _items(row.get(pictures))
    is_list = isinstance(row.get(pictures), list)
    cells = (Cell(shard, pictures, number, item if is_list else None) for item in range(len(shown)))
    pairs = enumerate(zip(shown, cells, strict=True))
    found = {place: picture for place, (value, cell) in pairs if (picture := _picture(value, cell, reading))}
    cleaned = [_text(word) if word is not None else None for word in words]
    if row.get(EXTRAS) is not None:
        yield restored([*filter(None, cleaned), *found.values()], reading, record_id, value_of(row[EXTRAS]))
        return
    own = next((row[name] for name in (*_IDS, *_KEYS) if isinstance(row.get(name), str | int)), None)
    is_of_all = isinstance(own, str) and not own.isdecimal() and any(row.get(name) == own for name in _IDS)
    if own is not None:
        record_id = str(own) if is_of_all else f"{record_id.rpartition(':')[0]}:{own}"
    sentences = [sentence(text or "") for text in cleaned]
    kept_texts = [place for place, text in enumerate(sentences) if text.text]
    if len(words) == len(shown) > 1 and not set(kept_texts) & found.keys():
        found = {at: replace(image, after=sum(text < at for text in kept_texts)) for at, image in found.items()}
    is_pair = len(kept_texts) == len(found) == 1 and not is_list
    yield from document_of(
        [sentences[place] for place in kept_texts],
        list(found.values()),
        reading,
        record_id,
        own=None if own is None else str(own),
        links=(Link(0, 0),) if is_pair else None,
        sentence_numbers=kept_texts,
        image_numbers=list(found),
    )


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_question(value: object) -> bool:
    """Return whether a text is a turn of a conversation that asks: answers are what is said of the picture."""
    return isinstance(value, dict) and value.get("from") in ("human", "user", "system")


def _text(value: object) -> str:
    """Return a text, which may be in a field of an object: of a caption, or of a turn of a conversation."""
    if isinstance(value, dict):
        value = next((value[name] for name in ("text", "raw", "value") if name in value), None)
    return typed(value, str, "a text").replace("<image>", " ")


def _picture(value: object, cell: Cell, reading: Reading) -> CandidateImage | None:
    """Return a picture, whose bytes are in a cell or elsewhere; None where there is none."""
    if value is True or (isinstance(value, dict) and value.get("bytes")):
        return CandidateImage(str(cell))
    path = value.get("path") if isinstance(value, dict) else value
    if not isinstance(path, str) or not path:
        return None
    if _BASE64.match(path):
        problem = FieldError(Reason.BROKEN_RECORD, "a picture in base64 is read of Parquet and Arrow alone")
        return CandidateImage(str(cell) if is_table(cell.table) else unusable(problem))
    is_beside = not (is_table(cell.table) or reading.has_images or on_web(path) or path.startswith("/"))
    return CandidateImage(str(PurePosixPath(cell.table).parent / path) if is_beside else path)
