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

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pipelines.embedded import Cell, Span, on_web
from pipelines.files import INSIDE, is_archive
from pipelines.sources.corpora.compose import Piece, Reading, compose, object_of, value_of
from pipelines.sources.corpora.names import EXTRAS, INTERLEAVED_SCHEMA, Interleaved
from pipelines.sources.corpora.rows import read_rows
from pipelines.sources.corpora.webdataset import read_webdataset
from pipelines.sources.fields import Number, text_or_none, typed
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, outcomes_of, unusable
from schemas.failures import Failure, Reason

_NEEDED = tuple(field.name for field in INTERLEAVED_SCHEMA if not field.nullable)
_READ = (
    *_NEEDED, Interleaved.TEXT, Interleaved.SOURCE, Interleaved.MEMBER, Interleaved.FRAME, Interleaved.ERROR, "url",
    EXTRAS,
)  # fmt: skip
_ROW = "row"  # its number
Row = dict[str, Any]


def read_interleaved(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a shard."""
    if is_archive(shard):
        yield from read_webdataset(shard, reading)
        return
    read = partial(_outcomes, reading=reading, shard=reading.address(shard))
    yield from outcomes_of(_samples(shard, reading.place(shard)), read)


def _samples(shard: str, place: str) -> Iterator[tuple[str, list[Row] | FieldError]]:
    """Yield the rows of each sample, under its id, when its last one was read: those not complete are in memory."""
    last = dict[Any, int]()
    begun = dict[Any, list[Row]]()
    for _, found in read_rows(shard, place, [Interleaved.SAMPLE], needed=_NEEDED):
        if not isinstance(found, FieldError):
            last[found[1][Interleaved.SAMPLE]] = found[0]
    for where, found in read_rows(shard, place, _READ, present=[Interleaved.BINARY]):
        if isinstance(found, FieldError):
            yield where, found
            continue
        sample = found[1][Interleaved.SAMPLE]
        begun.setdefault(sample, []).append({_ROW: found[0], **found[1]})
        if last[sample] == found[0]:
            yield _id(sample, place), begun.pop(sample)
    yield from ((_id(sample, place), rows) for sample, rows in begun.items())


def _id(sample: object, place: str) -> str:
    """Return a sample's id; a number is of its shard alone."""
    return f"{place}:{sample}" if str(sample).isdecimal() else str(sample)


def _outcomes(
    rows: list[Row], record_id: str, *, reading: Reading, shard: str
) -> Iterator[CandidateDocument | Failure]:
    rows.sort(key=lambda row: typed(row.get(Interleaved.POSITION), int, f"$.{Interleaved.POSITION}"))
    about = next((row for row in rows if row[Interleaved.MODALITY] == "metadata"), {})
    described = object_of(about.get(Interleaved.TEXT))
    url = about.get("url") or described.get("url")
    extras = about.get(EXTRAS) or described.get(EXTRAS)
    pieces = list(_pieces(rows, shard))
    yield from compose(
        pieces,
        reading,
        record_id,
        url=url if isinstance(url, str) else None,
        extras=value_of(extras),
    )


def _pieces(rows: list[Row], shard: str) -> Iterator[Piece]:
    for row in rows:
        if row[Interleaved.MODALITY] == "text" and (text := text_or_none(row, Interleaved.TEXT)):
            yield f"{text}\n"
        elif row[Interleaved.MODALITY] == "image":
            yield _picture(row, shard)


def _picture(row: Row, shard: str) -> CandidateImage:
    """Return where the picture of a row is; the curator says of one that it could not get, why."""
    try:
        source = _source(row)
        if row.get(Interleaved.BINARY):
            return CandidateImage(str(Cell(shard, Interleaved.BINARY, row[_ROW])), source)
        if source is None and (problem := row.get(Interleaved.ERROR)):
            raise FieldError(Reason.NOT_FOUND, f"{Interleaved.ERROR}: {problem}")
        if source is None:
            expected = f"expected {Interleaved.BINARY} or {Interleaved.SOURCE} of a picture"
            raise FieldError(Reason.MISSING_FIELD, f"row {row[_ROW]}: {expected}")
        return CandidateImage(source)
    except FieldError as problem:
        return CandidateImage(unusable(problem))


def _source(row: Mapping[str, Any]) -> str | None:
    """Return the address that `source_ref` names, None where it names none."""
    found = object_of(row.get(Interleaved.SOURCE))
    path = found.get("path") or found.get("content_path") or found.get("uri")
    if not path:
        return None
    member = found.get("member") or found.get("content_key") or row.get(Interleaved.MEMBER)
    frame = found.get("frame_index", row.get(Interleaved.FRAME))
    where = f"$.{Interleaved.SOURCE}"
    address = typed(path, str, where).removeprefix("file://")
    size = "byte_size" if found.get("byte_size") is not None else "size"
    if member:
        address += f"{INSIDE}{typed(member, str, where)}"
    elif found.get(size) is not None and not on_web(address):
        numbers = (typed(found.get(name), Number, f"{where}.{name}") for name in (size.replace("size", "offset"), size))
        address = str(Span(address, *numbers))
    return address if frame is None else f"{address}{INSIDE}{typed(frame, int, where)}"
