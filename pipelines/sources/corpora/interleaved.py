"""Published corpora of documents of texts and pictures: MMC4, OBELICS and MINT-1T, and NeMo Curator's rows.

MMC4: a shard of JSON Lines, plain, compressed or in a zip, a document a line (Zhu et al. 2023).

    docs_no_face_shard_0_v2.jsonl.zip
    {"text_list": ["..", ".."], "url": "http://..", "image_info": [{"image_name": "b9040a0dbb22.jpg",
     "raw_url": "http://..", "matched_text_index": 1, "matched_sim": 0.27, "face_detections": null}, ..],
     "similarity_matrix": [[0.24, 0.27], ..], "could_have_url_duplicate": 0}

The full corpus, its core and those with fewer faces have one form. The texts are sentences. CLIP's assignment and its
similarities are kept as given (`schemas.documents.Given`): they are no ground truth. Where a picture stood on its page
the corpus does not tell.

A picture is the file `image_name` in `images-X.tar` beside a shard `docs-X.jsonl` (this project's exports), or in
`source.images`; else it is fetched from its `raw_url`.

OBELICS and MINT-1T's HTML documents: Parquet, a document a row (Laurencon et al. 2023, Awadalla et al. 2024).

    images             ["https://..", null, null]         URLs
    texts              [null, "Cut the boards. Sand them.", "Glue them."]
    metadata           '[{"src": "https://..", "document_url": "https://..", "alt_text": ".."}, null, null]'
    general_metadata   '{"url": "https://..", ..}'         MINT-1T has a column `url`; OmniCorpus has structs in both

At each place stands either a picture or a text of several paragraphs, in the order of the page. Pictures are fetched
from their URLs, or looked up by them in `source.images`; a column `pictures` of Hugging Face's `Image`, parallel to
`images`, holds them (this project's exports). Alternative texts are metadata of the pictures.

NeMo Curator's interleaved rows in Parquet, and MINT-1T's tars of JSON and pictures (which `webdataset.py` reads).

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

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from pipelines.embedded import Cell, Span, on_web
from pipelines.files import INSIDE, is_archive
from pipelines.sources.corpora.compose import (
    EXTRAS,
    INTERLEAVED_SCHEMA,
    Piece,
    Reading,
    compose,
    document_of,
    in_document_order,
    object_of,
    parallel,
    restored,
    value_of,
)
from pipelines.sources.corpora.webdataset import read_webdataset
from pipelines.sources.fields import Number, Object, Real, text_or_none, typed
from pipelines.sources.own_files import OwnFiles
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    file_name,
    json_lines,
    outcomes_of,
    rejected,
    sentence,
    unusable,
    web_url,
)
from pipelines.sources.rows import read_rows
from pipelines.tables import read_schema
from schemas.documents import Given, GivenLink
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata, plain_text
from schemas.tables import clean

_COLUMNS = (
    "images", "texts", "metadata", "general_metadata", "url", "image_index", EXTRAS,
)  # fmt: skip
_NEEDED = tuple(field.name for field in INTERLEAVED_SCHEMA if not field.nullable)
_READ = (
    *_NEEDED, "text_content", "source_ref", "source_member", "source_frame_index", "materialize_error", "url",
    EXTRAS,
)  # fmt: skip
_ROW = "row"  # its number
Row = dict[str, Any]


def read_mmc4(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a shard."""
    place = PurePosixPath(reading.place(shard))
    files = {shard: str(place)}
    if is_archive(shard):
        members = (name for name in OwnFiles(shard).names if name.lower().endswith(".jsonl"))
        files = {f"{shard}{INSIDE}{name}": str(place.parent / name) for name in members}
    read = partial(_mmc4_outcomes, reading=reading, beside=_beside(shard, reading))
    for file, name in files.items():
        yield from outcomes_of(json_lines(file, name), read)


def _beside(shard: str, reading: Reading) -> str:
    """Return the address of the tar of a shard's pictures, where there is one."""
    name = PurePosixPath(shard).name.partition(".")[0]
    tar = f"{shard.rpartition('/')[0] or '.'}/images-{name.removeprefix('docs-')}.tar"
    return reading.address(tar) if name.startswith("docs-") and os.path.isfile(tar) else ""  # noqa: PTH113


def _mmc4_outcomes(
    record: Mapping[str, Any], record_id: str, *, reading: Reading, beside: str
) -> Iterator[CandidateDocument | Failure]:
    texts = typed(value_of(record.get("text_list")), list[str], "$.text_list")
    shown = list(map(value_of, typed(value_of(record.get("image_info")), list[Any], "$.image_info")))
    extras = record.get(EXTRAS)
    pictures = [_mmc4_picture(image, reading, beside) for image in shown]
    if extras is not None:
        yield restored([*texts, *pictures], reading, record_id, extras)
        return
    if reading.source.skip_repeats and record.get("could_have_url_duplicate") == 1:
        yield rejected(record_id, Reason.DUPLICATE_RECORD, "the corpus may have its page twice")
        return
    sentences = [sentence(text) for text in texts]
    kept_texts = [number for number, text in enumerate(sentences) if text.text]
    blank = (position for position, text in enumerate(sentences) if not text.text)
    yield from (rejected(record_id, Reason.EMPTY_SENTENCE, f"sentence {position} is blank") for position in blank)
    given = None
    try:
        given = _given(record, shown, len(texts)).of_kept(kept_texts, range(len(shown)), images_before=len(shown))
    except FieldError as problem:
        yield problem.failure(record_id)
    yield from document_of(
        [sentences[position] for position in kept_texts],
        pictures,
        reading,
        record_id,
        url=text_or_none(record, "url"),
        given=given,
        sentence_numbers=kept_texts,
    )


def _mmc4_picture(image: object, reading: Reading, beside: str) -> CandidateImage:
    """Return where a picture is."""
    try:
        fields = typed(image, Object, "$.image_info")
        if beside or (reading.source.images and fields.get("image_name")):
            name = file_name(text_or_none(fields, "image_name"), "image_name")
            url = (text_or_none(fields, "raw_url") or "").strip() or None
            return CandidateImage(f"{beside}{INSIDE}{name}" if beside else name, url)
        return CandidateImage(web_url(typed(fields.get("raw_url"), str, "raw_url").strip(), "raw_url"))
    except FieldError as problem:
        return CandidateImage(unusable(problem))


def _given(record: Mapping[str, Any], images: list[Any], texts: int) -> Given:
    """Return CLIP's assignment and, transposed, its similarities.

    Raises:
        FieldError: an index leads outside the texts, or the similarities have another shape.
    """
    links = []
    for position, image in enumerate(images):
        if isinstance(image, dict) and image.get("matched_text_index") is not None:
            text = typed(image["matched_text_index"], Number, "$.matched_text_index", is_lax=True)
            if text >= texts:
                raise FieldError(Reason.BAD_LINK, f"matched_text_index {text}: the document has {texts} texts")
            links.append(GivenLink(text, position, typed(image.get("matched_sim"), Real | None, "$.matched_sim")))
    rows = value_of(record.get("similarity_matrix"))
    if not rows:
        return Given(tuple(links))
    cells = typed(rows, list[list[Real]], "$.similarity_matrix")
    if len(cells) != len(images) or any(len(row) != texts for row in cells):
        raise FieldError(Reason.BROKEN_RECORD, f"similarity_matrix: expected {len(images)} x {texts} numbers")
    return Given(tuple(links), tuple(row[text] for text in range(texts) for row in cells))


def read_obelics(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a shard."""
    records = read_rows(shard, reading.place(shard), _COLUMNS, needed=("images", "texts"))
    has_pictures = "pictures" in read_schema(shard).names
    embedded = reading.address(shard) if has_pictures else ""
    yield from outcomes_of(records, partial(_obelics_outcomes, reading=reading, embedded=embedded))


def _obelics_outcomes(
    numbered: tuple[int, Mapping[str, Any]], record_id: str, *, reading: Reading, embedded: str
) -> Iterator[CandidateDocument | Failure]:
    row, record = numbered
    images, texts = parallel(record, str | None)
    listed = value_of(record.get("metadata"))
    about = listed if isinstance(listed, list) and len(listed) == len(images) else [None] * len(images)
    pieces = list(_obelics_pieces(images, texts, about, embedded, row))
    url = text_or_none(record, "url") or object_of(record.get("general_metadata")).get("url")
    extras = value_of(record.get(EXTRAS))
    if extras is not None:
        pieces = in_document_order(pieces, record.get("image_index"))
    yield from compose(pieces, reading, record_id, url=url if isinstance(url, str) else None, extras=extras)


def _obelics_pieces(
    images: list[str | None], texts: list[str | None], about: list[Any], shard: str, row: int
) -> Iterator[Piece]:
    """Yield texts and pictures; those are in a shard, "": none of them is."""
    for item, (image, text) in enumerate(zip(images, texts, strict=True)):
        if image is not None:
            address = str(Cell(shard, "pictures", row, item)) if shard else image.strip()
            yield CandidateImage(address, image.strip() or None if shard else None, metadata=_metadata(about[item]))
        if text is not None:
            yield f"{text}\n"


def _metadata(about: object) -> Metadata | None:
    caption = object_of(about).get("alt_text")
    text = plain_text(clean(caption)) if isinstance(caption, str) else None
    return Metadata(caption=text) if text else None


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
    for _, found in read_rows(shard, place, ["sample_id"], needed=_NEEDED):
        if not isinstance(found, FieldError):
            last[found[1]["sample_id"]] = found[0]
    for where, found in read_rows(shard, place, _READ, present=["binary_content"]):
        if isinstance(found, FieldError):
            yield where, found
            continue
        sample = found[1]["sample_id"]
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
    rows.sort(key=lambda row: typed(row.get("position"), int, "$.position"))
    about = next((row for row in rows if row["modality"] == "metadata"), {})
    described = object_of(about.get("text_content"))
    url = about.get("url") or described.get("url")
    extras = about.get(EXTRAS) or described.get(EXTRAS)
    yield from compose(
        _pieces(rows, shard),
        reading,
        record_id,
        url=url if isinstance(url, str) else None,
        extras=value_of(extras),
    )


def _pieces(rows: list[Row], shard: str) -> Iterator[Piece]:
    for row in rows:
        if row["modality"] == "text" and (text := text_or_none(row, "text_content")):
            yield f"{text}\n"
        elif row["modality"] == "image":
            yield _picture(row, shard)


def _picture(row: Row, shard: str) -> CandidateImage:
    """Return where the picture of a row is; the curator says of one that it could not get, why."""
    try:
        source = _source(row)
        if row.get("binary_content"):
            return CandidateImage(str(Cell(shard, "binary_content", row[_ROW])), source)
        if source is None and (problem := row.get("materialize_error")):
            raise FieldError(Reason.NOT_FOUND, f"materialize_error: {problem}")
        if source is None:
            expected = "expected binary_content or source_ref of a picture"
            raise FieldError(Reason.MISSING_FIELD, f"row {row[_ROW]}: {expected}")
        return CandidateImage(source)
    except FieldError as problem:
        return CandidateImage(unusable(problem))


def _source(row: Mapping[str, Any]) -> str | None:
    """Return the address that `source_ref` names, None where it names none."""
    found = object_of(row.get("source_ref"))
    path = found.get("path") or found.get("content_path") or found.get("uri")
    if not path:
        return None
    member = found.get("member") or found.get("content_key") or row.get("source_member")
    frame = found.get("frame_index", row.get("source_frame_index"))
    where = "$.source_ref"
    address = typed(path, str, where).removeprefix("file://")
    size = "byte_size" if found.get("byte_size") is not None else "size"
    if member:
        address += f"{INSIDE}{typed(member, str, where)}"
    elif found.get(size) is not None and not on_web(address):
        names = (size.replace("size", "offset"), size)
        begin, length = (typed(found.get(name), Number, f"{where}.{name}") for name in names)
        address = str(Span(address, begin, length))
    return address if frame is None else f"{address}{INSIDE}{typed(frame, int, where)}"
