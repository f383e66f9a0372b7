"""The copies of pictures that a lake holds, and of uploads.

A copy is read by itself: a small row group of a pack, or one of a version. A lake that built a version has packs. A
version that was brought from elsewhere has its pictures in its parts alone.
"""

from functools import lru_cache
from io import BytesIO
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from PIL import Image, ImageOps

from pipelines.card.duplicates import find_copies
from schemas.errors import NotFoundError
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import Manifest, read_manifest

PARTS_KEPT, GROUPS_KEPT = 32, 8  # hashes and footers of parts; row groups of 256 pictures
KEPT = {"cache-control": "private, max-age=600"}  # a picture may be forgotten: a browser asks again after ten minutes
UPLOAD_PX = 512  # of the longer side


class Copies:
    """The pictures of a lake; may be used by several threads."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._version = lru_cache(64)(lambda reference: read_manifest(lake, reference))
        self._hashes = lru_cache(PARTS_KEPT)(_hashes)
        self._group = lru_cache(GROUPS_KEPT)(_group)

    def jpeg(self, reference: str, image: str, part: str = "") -> bytes:
        """Return the bytes of a picture's copy.

        Args:
            reference: NAME@VERSION.
            image: content hash.
            part: path of the images part that holds it, as the manifest has it; "": any.

        Raises:
            NotFoundError: there is no such version or picture, or the lake has no copy of it.
        """
        manifest, folder = self._version(reference)
        if not folder.exists(MANIFEST):  # what `lake forget` removed is in no cache, either
            for cache in (self._version, self._hashes, self._group):
                cache.cache_clear()
            raise NotFoundError(f"{reference}: the version was removed")
        found = find_copies(self._lake, [image]).get(image) or self._of_version(manifest, folder, image, part)
        if found is None:
            raise NotFoundError(f"{reference}: no copy of picture {image[:16]}")
        return found

    def _of_version(self, manifest: Manifest, folder: Folder, image: str, part: str) -> bytes | None:
        entries = [entry.path for split in manifest.splits for entry in manifest.parts("images", split)]
        for path in entries if not part else [each for each in entries if each == part]:
            hashes, ends, metadata = self._hashes(folder, path)
            row = pc.index(hashes, image).as_py()
            if row >= 0:
                number = int(np.searchsorted(ends, row, side="right"))
                start = ends[number - 1] if number else 0
                jpeg: bytes | None = self._group(folder, path, metadata, number)[row - start].as_py()
                return jpeg
        return None


def _hashes(folder: Folder, path: str) -> tuple[pa.ChunkedArray, list[int], pq.FileMetaData]:
    """Return the hashes of a part, where each of its row groups ends, and its footer, which takes long to read."""
    with folder.open(path) as stream:
        file = pq.ParquetFile(stream)
        ends = accumulate(file.metadata.row_group(number).num_rows for number in range(file.num_row_groups))
        return file.read(columns=["hash"]).column(0), list(ends), file.metadata


def _group(folder: Folder, path: str, metadata: pq.FileMetaData, number: int) -> pa.ChunkedArray:
    with folder.open(path) as stream:
        return pq.ParquetFile(stream, metadata=metadata).read_row_group(number, columns=["jpeg"]).column(0)


def small_copy(data: bytes) -> bytes:
    """Return a JPEG of an image file, at most UPLOAD_PX wide and high."""
    with Image.open(BytesIO(data)) as opened:
        drawn = ImageOps.exif_transpose(opened).convert("RGB")
    drawn.thumbnail((UPLOAD_PX, UPLOAD_PX))
    out = BytesIO()
    drawn.save(out, "JPEG", quality=85)
    return out.getvalue()
