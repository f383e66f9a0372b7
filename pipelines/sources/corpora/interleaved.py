"""NeMo Curator's interleaved rows in Parquet, and MINT-1T's tars of JSON and pictures (which `webdataset.py` reads).

    sample_id  position  modality   text_content       binary_content  source_ref
    doc-1      -1        metadata   '{"url": "..."}'
    doc-1      0         text       "Cut the boards."
    doc-1      1         image                         <bytes>         '{"path": "s.tar", "member": "1.jpg"}'

A document is the rows of one sample, wherever they stand in the shard. The text of a row is running text. A picture is
in the row itself; else `source_ref` says where it is: a URL, or a path below `source.images`, with a member or a range
of bytes, and a frame. A newer form of `source_ref` is a struct with a `uri`; member and frame are columns of their own.
A picture that the curator could not get (`materialize_error`) is a failure with its message. Rows of other modalities
(tables, audio) are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from pipelines.files import INSIDE, BrokenInputError, is_archive
from pipelines.sources.corpora.compose import Picture, Piece, Reading, compose
from pipelines.sources.corpora.webdataset import read_webdataset
from pipelines.sources.records import (
    CandidateDocument,
    FieldError,
    checked,
    number,
    on_web,
    outcomes_of,
    required,
    text_or_none,
    unusable,
)
from pipelines.tables import read_batches, read_schema
from schemas.corpora import EXTRAS, INTERLEAVED_SCHEMA, Interleaved
from schemas.failures import Failure, Reason

_NEEDED = tuple(field.name for field in INTERLEAVED_SCHEMA if not field.nullable)
_READ = (
    *_NEEDED, Interleaved.TEXT, Interleaved.SOURCE, Interleaved.MEMBER, Interleaved.FRAME, Interleaved.ERROR, "url",
    EXTRAS,
)  # fmt: skip
_IN_ROW = "is in the row"
Row = dict[str, Any]


def read_interleaved(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a shard."""
    if is_archive(shard):
        yield from read_webdataset(shard, reading)
        return
    read = partial(_outcomes, reading=reading, shard=reading.address(shard))
    yield from outcomes_of(_samples(shard), read)


def _samples(shard: str) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each sample, under its id, when its last one was read: those not complete are in memory."""
    name, there = PurePosixPath(shard).name, read_schema(shard).names
    if not set(_NEEDED) <= set(there):
        found = ", ".join(there)
        raise BrokenInputError(f"{name}: expected the columns {', '.join(_NEEDED)}, found {found}", name)
    last = dict[Any, int]()
    begun = dict[Any, list[Row]]()
    for first, batch in read_batches(shard, [Interleaved.SAMPLE.value]):
        last.update((sample, row) for row, sample in enumerate(batch.column(0).to_pylist(), first))
    for row in _rows(shard, there):
        sample = row[Interleaved.SAMPLE]
        begun.setdefault(sample, []).append(row)
        if last[sample] == row["row"]:
            yield str(sample), begun.pop(sample)


def _rows(shard: str, there: Sequence[str]) -> Iterator[Row]:
    """Yield rows, each with its number and whether its picture is in it, and without the picture."""
    columns = [column for column in _READ if column in there]
    with_bytes = [Interleaved.BINARY.value] if Interleaved.BINARY in there else []
    for first, batch in read_batches(shard, [*columns, *with_bytes]):
        held = batch.column(Interleaved.BINARY.value).is_valid().to_pylist() if with_bytes else [False] * batch.num_rows
        for place, row in enumerate(batch.select(columns).to_pylist()):
            yield row | {"row": first + place, _IN_ROW: held[place]}


def _outcomes(
    rows: list[Row], record_id: str, *, reading: Reading, shard: str
) -> Iterator[CandidateDocument | Failure]:
    rows.sort(key=lambda row: required(row, Interleaved.POSITION, int))
    about = next((row for row in rows if row[Interleaved.MODALITY] == "metadata"), {})
    said = _object(about.get(Interleaved.TEXT))
    url = about.get("url") or said.get("url")
    extras = about.get(EXTRAS) or said.get(EXTRAS)
    pieces = list(_pieces(rows, shard))
    yield from compose(
        pieces,
        reading,
        record_id,
        url=url if isinstance(url, str) else None,
        extras=_object(extras) if isinstance(extras, str) else extras,
    )


def _pieces(rows: list[Row], shard: str) -> Iterator[Piece]:
    for row in rows:
        if row[Interleaved.MODALITY] == "text" and (text := text_or_none(row, Interleaved.TEXT)):
            yield f"{text}\n"
        elif row[Interleaved.MODALITY] == "image":
            yield _picture(row, shard)


def _picture(row: Row, shard: str) -> Picture:
    """Return where the picture of a row is; the curator says of one that it could not get, why."""
    try:
        source = _source(row)
        if row[_IN_ROW]:
            return Picture(f"{shard}{INSIDE}{Interleaved.BINARY}/{row['row']}", source)
        if source is None and (problem := row.get(Interleaved.ERROR)):
            raise FieldError(Reason.NOT_FOUND, f"{Interleaved.ERROR}: {problem}")
        if source is None:
            expected = f"expected {Interleaved.BINARY} or {Interleaved.SOURCE} of a picture"
            raise FieldError(Reason.MISSING_FIELD, f"row {row['row']}: {expected}")
        return Picture(source)
    except FieldError as problem:
        return Picture(unusable(problem))


def _source(row: Mapping[str, Any]) -> str | None:
    """Return the address that `source_ref` names, None where it names none."""
    given = row.get(Interleaved.SOURCE)
    found = given if isinstance(given, dict) else _object(given)
    path = found.get("path") or found.get("content_path") or found.get("uri")
    if not path:
        return None
    member = found.get("member") or found.get("content_key") or row.get(Interleaved.MEMBER)
    frame = found.get("frame_index", row.get(Interleaved.FRAME))
    address = checked(path, str, Interleaved.SOURCE).removeprefix("file://")
    size = "byte_size" if found.get("byte_size") is not None else "size"
    if member:
        address += f"{INSIDE}{checked(member, str, 'a member')}"
    elif found.get(size) is not None and not on_web(address):
        begin = number(found, size.replace("size", "offset"))
        address += f"{INSIDE}bytes={begin}-{begin + number(found, size) - 1}"
    return address if frame is None else f"{address}{INSIDE}{checked(frame, int, 'a frame')}"


def _object(text: object) -> dict[str, Any]:
    """Return the JSON object in a text; an empty one where there is none."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
