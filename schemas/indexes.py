"""An index: what makes the pictures of a data set version searchable by one model; made again from both at any time.

<lake>/indexes/<data set>/<version>/<model>/parts/<digest>/  written once and never changed
                                                vectors.npy   n x d float32, unit vectors, in order of content hash
                                                fields.arrow  what is known of the same pictures (`FIELDS_SCHEMA`)
                                                words/        their words, a segment of a tantivy index
                                            places.arrow      where each picture is in the version; null: it is gone
                                            cells.faiss       IVF,SQ8 of the rows that are; from EXACT_BELOW images on
                                            confidence.json   probabilities of results, where validation texts give them
                                            model/            the model itself, and calibration.json where it has one
                                            signature.json    of the manifest, by who made it, where there is a key
                                            manifest.json     written last: what a reader trusts

Rows are numbered through the parts, in the order of the manifest. An index of the next version has the files of the
parts before (a hard link, on an object store a copy) and one part more; a picture that is gone keeps its row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa

from schemas.configs import JsonFile
from schemas.lake import inner_path
from schemas.manifest import FileEntry
from schemas.tables import column, table_schema

PARTS, FIELDS, VECTORS, WORDS = "parts", "fields.arrow", "vectors.npy", "words"

PLACES, CELLS, CONFIDENCE, MODEL = "places.arrow", "cells.faiss", "confidence.json", "model"

SIGNATURE = "signature.json"  # in a DSSE envelope; not among the files of the manifest, which it signs

_SHARED = pa.dictionary(pa.int32(), pa.string())  # few different values

FIELDS_SCHEMA = table_schema(
    "index fields",
    1,
    [
        column("key", pa.uint64(), "first 64 bits of the content hash; rows are in its order"),
        column("image", pa.string(), "content hash: SHA-256 (hex) of the original bytes"),
        column("source", pa.large_string(), "URL or path it came from", nullable=True),
        column("format", _SHARED, "of the original", nullable=True),
        column("width", pa.int32(), "of the original", nullable=True, unit="px"),
        column("height", pa.int32(), "of the original", nullable=True, unit="px"),
        column("orientation", _SHARED, "landscape, portrait or square", nullable=True),
        column("cluster", pa.string(), "of near-duplicates: the smallest hash among them", nullable=True),
        column("licence", _SHARED, "as its source states it, else the rights in its metadata", nullable=True),
        column("title", pa.large_string(), "headline or name", nullable=True),
        column("caption", pa.large_string(), "what it shows, by its file or archive", nullable=True),
        column("credit", _SHARED, "agency or photographer", nullable=True),
        column("rights", pa.large_string(), "as its metadata state them", nullable=True),
        column("date", pa.string(), "when it was made, ISO 8601 to the day, month or year", nullable=True),
        column("day", pa.int32(), "the date as YYYYMMDD, zeros for what it does not tell", nullable=True),
        column("place", pa.large_string(), "where, from small to large", nullable=True),
        column("keywords", pa.list_(pa.string()), "as given; empty: none"),
        column("shown_with", pa.large_string(), "captions of the articles that showed it", nullable=True),
    ],
)


PLACES_SCHEMA = table_schema(
    "index places",
    1,
    [
        column("part", _SHARED, "images part of the version; null: the picture is not in the version", nullable=True),
        column("part_row", pa.int32(), "row in that part", nullable=True),
    ],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellsNote:
    """How the approximate index of many images is searched.

    Attributes:
        cells: inverted lists.
        probes: lists that are looked at for a query.
        recall: share of the true first 50 that was among the candidates then, 0 to 1.
        queries: how many queries that was measured with.
        measured_with: texts of the version, or pictures where no text of it can be read by the model.
        images: how many the lists were made for; more may have been put into them since.
    """

    cells: int
    probes: int
    recall: float
    queries: int
    measured_with: Literal["texts", "pictures"]
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexManifest(JsonFile):
    """What an index is; no clock time, so that equal indexes have equal manifests.

    Attributes:
        model: URI of the model, with its version.
        dataset: NAME@VERSION.
        made_by: fingerprint of the model's weights, the data set's manifest, the calibration and the libraries.
        rows_by: fingerprint of what else than a picture decides its row: the model, the features it reads, the
            libraries. An index of another version with the same one has the same rows of the same pictures.
        images: different images in it.
        rows: of all parts; those beyond `images` are of pictures that are not in the version.
        dimensions: of their vectors.
        parts: their names, in order.
        cells: None where every search is exact.
        rank_by: what puts pictures in order unless a search says so: what finds validation texts' pictures best.
        described: how many images have each field of metadata.
        files: every file.
    """

    what: ClassVar[str] = "a manifest of an index"
    model: str
    dataset: str
    made_by: str
    rows_by: str
    images: int
    rows: int
    dimensions: int
    parts: tuple[str, ...]
    cells: CellsNote | None
    rank_by: str
    described: Mapping[str, int]
    files: tuple[FileEntry, ...]
    format: Literal[3] = 3

    def __post_init__(self) -> None:
        for part in self.parts:
            inner_path(part)
