"""The formats that are files: what a shard's documents become in each.

`mmc4`, `obelics` and `webdataset` have the fields that their projects publish (`pipelines.sources.corpora.compose`),
and in `multilink` what those have no field for. `hf` is one row a document with its pictures, for Hugging Face
`datasets`.
The same documents give the same bytes: no clock time, no owner, nothing of the machine.
"""

import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from pipelines.exports.reading import Piece, ShownDocument
from pipelines.shards.writing import groups_of, write_file, write_part
from pipelines.sources.corpora.compose import EXTRAS, IMAGE_FEATURE
from schemas.documents import document_schema
from schemas.lake import Folder
from schemas.manifest import FileEntry

ROWS_PER_GROUP = 64  # documents with their pictures: some megabytes
_IMAGE_LIST = {"feature": {"_type": "Image"}, "_type": "List"}


@dataclass(frozen=True, slots=True)
class Format:
    """A format whose files are made of one shard each.

    Attributes:
        paths: of a shard's files, with `{}` for its name; the first holds the documents.
        write: writes a shard's documents to those paths of a folder.
    """

    paths: tuple[str, ...]
    write: Callable[[Sequence[ShownDocument], Folder, Sequence[str]], list[FileEntry]]


def write_mmc4(documents: Sequence[ShownDocument], folder: Folder, paths: Sequence[str]) -> list[FileEntry]:
    """Write documents as JSON Lines, and each of their pictures once, by name, in a tar beside it."""
    pictures = {_file_name(picture): picture["jpeg"] for document in documents for picture in document.pictures}
    members = ((name, jpeg) for name, jpeg in sorted(pictures.items()) if jpeg is not None)
    return [write_json_lines(folder, paths[0], map(mmc4_record, documents)), write_tar(folder, paths[1], members)]


def mmc4_record(document: ShownDocument) -> dict[str, Any]:
    """Return a document as MMC4 has it.

    MMC4's readers take every match and similarity for a number, so each is one. Matches are those that the corpus came
    with; else an image matches the first sentence that it is linked with, and linked pairs have the similarity 1. What
    is not known is sentence 0 with similarity 0: readers leave such an image out.
    """
    row = document.row
    matches = _matches(row)
    return {
        "url": row["provenance"]["url"],
        "text_list": [sentence["text"] for sentence in row["sentences"]],
        "image_info": [
            {
                "image_name": _file_name(picture),
                "raw_url": picture["source"],
                "matched_text_index": matches.get(number, (0, 0.0))[0],
                "matched_sim": matches.get(number, (0, 0.0))[1],
                "face_detections": None,
            }
            for number, picture in enumerate(document.pictures)
        ],
        "similarity_matrix": _similarities(row, len(document.pictures)),
        "could_have_url_duplicate": 0,
        EXTRAS: document.extras,
    }


def _matches(row: Mapping[str, Any]) -> dict[int, tuple[int, float]]:
    """Return of each image that has one its first sentence, with its similarity."""
    given = row.get("given_links")
    links = (row["links"] or []) if given is None else given
    ordered = sorted(links, key=lambda link: link["sentence"], reverse=True)
    return {link["image"]: (link["sentence"], _similarity(link)) for link in ordered}


def _similarity(link: Mapping[str, Any]) -> float:
    return 1.0 if link.get("similarity") is None else link["similarity"]


def _similarities(row: Mapping[str, Any], images: int) -> list[list[float]]:
    """Return the given similarities by image and then by sentence; else those of links."""
    given = row.get("given_similarities")
    if given is not None:
        return [given[image::images] for image in range(images)]
    links = (row["links"] or []) if row.get("given_links") is None else row["given_links"]
    known = {(link["image"], link["sentence"]): _similarity(link) for link in links}
    return [[known.get((image, text), 0.0) for text in range(len(row["sentences"]))] for image in range(images)]


_OBELICS_SCHEMA = pa.schema(
    [
        pa.field("images", pa.list_(pa.string())),
        pa.field("metadata", pa.string()),
        pa.field("general_metadata", pa.string()),
        pa.field("texts", pa.list_(pa.string())),
        pa.field("image_index", pa.list_(pa.int32())),
        pa.field("pictures", pa.list_(IMAGE_FEATURE)),
        pa.field(EXTRAS, pa.string()),
    ],
    metadata={"huggingface": json.dumps({"info": {"features": {"pictures": _IMAGE_LIST}}})},
)


def obelics_row(document: ShownDocument) -> dict[str, Any]:
    """Return a document as OBELICS has it, with its pictures in a list of their own parallel to the others."""
    row, pictures = document.row, document.pictures
    url = row["provenance"]["url"]
    pieces = list(document.layout())
    shown = [pictures[piece.number] if piece.kind == "image" else None for piece in pieces]
    details = [
        picture
        and {
            "document_url": url,
            "src": picture["source"],
            "formatted_filename": _file_name(picture),
            "format": picture["format"],
            "original_width": picture["width"],
            "original_height": picture["height"],
            "licence": picture["licence"],
        }
        for picture in shown
    ]
    return {
        "images": [picture and (picture["source"] or _file_name(picture)) for picture in shown],
        "metadata": _json(details),
        "general_metadata": _json({"url": url}),
        "texts": [_text(row, piece) for piece in pieces],
        "image_index": [piece.number if piece.kind == "image" else None for piece in pieces],
        "pictures": [picture and hugging_face_picture(picture) for picture in shown],
        EXTRAS: _json(document.extras),
    }


def write_webdataset(documents: Sequence[ShownDocument], folder: Folder, paths: Sequence[str]) -> list[FileEntry]:
    """Write documents as a tar: of each `<key>.json`, then `<key>.<number of the image>.jpg`."""
    stem = paths[0].removesuffix(".tar")
    keyed = [(f"{stem}-{number:05d}", document) for number, document in enumerate(documents)]
    return [write_tar(folder, paths[0], (member for key, document in keyed for member in _sample(key, document)))]


def _sample(key: str, document: ShownDocument) -> Iterator[tuple[str, bytes]]:
    names = [None if picture["jpeg"] is None else f"{number}.jpg" for number, picture in enumerate(document.pictures)]
    pieces = list(document.layout())
    record = {
        "url": document.row["provenance"]["url"],
        "texts": [_text(document.row, piece) for piece in pieces],
        "images": [f"{piece.number}.jpg" if piece.kind == "image" else None for piece in pieces],
        "image_index": [piece.number if piece.kind == "image" else None for piece in pieces],
        EXTRAS: document.extras,
    }
    yield f"{key}.json", _json(record).encode()
    for name, picture in zip(names, document.pictures, strict=True):
        if name is not None:
            yield f"{key}.{name}", picture["jpeg"]


_SHARED = ("id", "dataset", "language", "split", "sentences")
_STATED = ("links", "after_sentence", "provenance")
ROW_SCHEMA = pa.schema(
    [
        *(pa.field(name, document_schema().field(name).type) for name in _SHARED),
        pa.field("images", pa.list_(IMAGE_FEATURE)),
        *(pa.field(f"image_{name}", pa.list_(pa.string())) for name in ("hashes", "sources", "licences")),
        *(pa.field(name, document_schema().field(name).type) for name in _STATED),
        pa.field(EXTRAS, pa.string()),
    ],
    metadata={"huggingface": json.dumps({"info": {"features": {"images": _IMAGE_LIST}}})},
)


def document_row(document: ShownDocument) -> dict[str, Any]:
    """Return a document as a row of `ROW_SCHEMA`, with its pictures, which Hugging Face `datasets` decodes."""
    row, pictures = document.row, document.pictures
    return {
        **{name: row[name] for name in (*_SHARED, *_STATED)},
        "images": [hugging_face_picture(picture) for picture in pictures],
        "image_hashes": [picture["hash"] for picture in pictures],
        "image_sources": [picture["source"] for picture in pictures],
        "image_licences": [picture["licence"] for picture in pictures],
        EXTRAS: _json(document.extras),
    }


def hugging_face_picture(picture: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a picture as Hugging Face's Image is stored, None where there are no pixels."""
    return None if picture["jpeg"] is None else {"bytes": picture["jpeg"], "path": _file_name(picture)}


def write_json_lines(folder: Folder, path: str, records: Iterable[Mapping[str, Any]]) -> FileEntry:
    """Write a JSON object a line."""

    def write(stream: BinaryIO) -> int:
        rows = 0
        for record in records:
            stream.write(f"{_json(record)}\n".encode())
            rows += 1
        return rows

    return write_file(folder, path, write)


def write_tar(folder: Folder, path: str, members: Iterable[tuple[str, bytes]]) -> FileEntry:
    """Write files of names and bytes as a tar, with no time and no owner; its rows are its members."""

    def write(stream: BinaryIO) -> int:
        rows = 0
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for name, data in members:
                header = tarfile.TarInfo(name)
                header.size = len(data)
                archive.addfile(header, io.BytesIO(data))
                rows += 1
        return rows

    return write_file(folder, path, write)


def _write_rows(
    row_of: Callable[[ShownDocument], Mapping[str, Any]],
    schema: pa.Schema,
    documents: Sequence[ShownDocument],
    folder: Folder,
    paths: Sequence[str],
) -> list[FileEntry]:
    """Write documents as Parquet, a row each."""
    groups = groups_of(documents, ROWS_PER_GROUP)
    tables = (pa.Table.from_pylist(list(map(row_of, some)), schema) for some in groups)
    return [write_part(folder, paths[0], tables, schema)]


FORMATS: Mapping[str, Format] = {
    "mmc4": Format(("docs-{}.jsonl", "images-{}.tar"), write_mmc4),
    "obelics": Format(("data/{}.parquet",), partial(_write_rows, obelics_row, _OBELICS_SCHEMA)),
    "webdataset": Format(("{}.tar",), write_webdataset),
    "hf": Format(("data/{}.parquet",), partial(_write_rows, document_row, ROW_SCHEMA)),
}


def _text(row: Mapping[str, Any], piece: Piece) -> str | None:
    return row["sentences"][piece.number]["text"] if piece.kind == "text" else None


def _file_name(picture: Mapping[str, Any]) -> str:
    return f"{picture['hash']}.jpg"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
