"""Which images of a version were seen before, in versions that its settings name.

An image was seen where an earlier version has one of the same bytes; else where it has one whose vector, by the same
extractor, is within the cosine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.copy_detection.near_vectors import nearest_of
from pipelines.settings import CopyDetectionConfig
from schemas.documents import Split
from schemas.duplicates import SeenImage
from schemas.features import FeatureColumn, column_to_vectors
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.parts import read_part


@dataclass(frozen=True, slots=True)
class SeenCount:
    """Of a version's different images: how many an earlier one has with the same bytes, and how many as copies.

    Attributes:
        version: the earlier one, NAME@VERSION.
        copies: None where it has no vectors of the same extractor.
    """

    version: str
    images: int
    same: int
    copies: int | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def seen_before(
    manifest: Manifest, folder: Folder, lake: Lake, config: CopyDetectionConfig
) -> Iterator[tuple[SeenCount, list[SeenImage]]]:
    """Yield what each earlier version has of a version's images: its count, and a row an image that was seen."""
    column = next((each for each in manifest.columns("images") if each.name == config.extractor), None)
    hashes, vectors = _images(manifest, folder, column)
    for reference in config.against:
        earlier, its_folder = read_manifest(lake, reference)
        shared = column if column in earlier.columns("images") else None
        known, its_vectors = _images(earlier, its_folder, shared)
        is_same = np.isin(hashes, known)
        rows = [SeenImage(image, reference, image, 1.0) for image in hashes[is_same].tolist()]
        if vectors is not None and its_vectors is not None:
            new = np.flatnonzero(~is_same)
            (queries, found), cosines = nearest_of(vectors[new], its_vectors, config.cosine)
            pairs = zip(hashes[new[queries]].tolist(), known[found].tolist(), cosines.tolist(), strict=True)
            rows += [SeenImage(image, reference, seen, cosine) for image, seen, cosine in pairs]
        copies = None if its_vectors is None or vectors is None else len(rows) - int(is_same.sum())
        yield SeenCount(reference, len(hashes), int(is_same.sum()), copies), rows


def seen_lines(counts: Sequence[SeenCount]) -> list[str]:
    """Return in words how many images were seen before."""
    return [
        f"seen before in {each.version}: {each.same} of {each.images} images with the same bytes, "
        + ("copies not known" if each.copies is None else f"{each.copies} as copies")
        for each in counts
    ]


def _images(
    manifest: Manifest, folder: Folder, column: FeatureColumn | None
) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.float32] | None]:
    """Return the hashes of a version's different images, sorted, and their vectors in one column, if one is given."""
    hashes, vectors = list[npt.NDArray[np.str_]](), list[npt.NDArray[np.float32]]()
    for split in Split:
        for entry in manifest.parts("images", split):
            part = read_part(folder, entry, ["hash", *([] if column is None else [column.column])])
            hashes.append(part["hash"].to_numpy(zero_copy_only=False).astype(str))
            if column is not None and len(part):
                vectors.append(column_to_vectors(part[column.column]).astype(np.float32))
    every, first = np.unique(np.concatenate([np.empty(0, str), *hashes]), return_index=True)
    return every, np.concatenate(vectors)[first] if vectors else None
