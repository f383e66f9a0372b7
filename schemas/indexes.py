"""INDEX: what makes the pictures of a data set version searchable by one model; made anew from both at any time.

<lake>/indexes/<data set>/<version>/<model>/vectors.npy        N x d float32, unit vectors, in order of content hash
                                            cells.faiss        IVF,SQ8 of the same rows; from EXACT_BELOW images on
                                            images.sqlite      row number -> metadata; full text to filter by
                                            words/             word -> score of each picture (bm25s)
                                            model/             the model itself, and calibration.json where it has one
                                            manifest.json      written last: what a reader trusts
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from schemas.manifest import FileEntry, JsonFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CellsNote:
    """How the approximate index of many images is searched.

    Attributes:
        cells: inverted lists.
        probes: lists that are looked at for a query.
        recall: share of the true first 50 that was among the candidates then, 0 to 1.
        queries: how many queries that was measured with.
        measured_with: texts of the version, or pictures where no text of it can be read by the model.
    """

    cells: int
    probes: int
    recall: float
    queries: int
    measured_with: Literal["texts", "pictures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexManifest(JsonFile):
    """What an index is; no clock time, so that equal indexes have equal manifests.

    Attributes:
        model: URI of the model, with its version.
        dataset: NAME@VERSION.
        made_by: fingerprint of the model's weights, the data set's manifest, the calibration and the libraries.
        images: different images in it.
        dimensions: of their vectors.
        cells: None where every search is exact.
        described: how many images have each field of metadata.
        files: every file.
    """

    what: ClassVar[str] = "a manifest of an index"
    model: str
    dataset: str
    made_by: str
    images: int
    dimensions: int
    cells: CellsNote | None
    described: Mapping[str, int]
    files: tuple[FileEntry, ...]
    format: Literal[2] = 2
