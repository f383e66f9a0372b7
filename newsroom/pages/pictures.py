"""The copies of pictures that a lake holds, and of uploads; and clusters of near-duplicates.

A copy is read by itself: a small row group of a pack, or one of a version. A lake that built a version has packs. A
version that was brought from elsewhere has its pictures in its parts alone.

A cluster is shown with its first images and occurrences, however large it is.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from io import BytesIO
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from PIL import Image, ImageOps

from pipelines.images.inspect import ROWS_PER_GROUP
from pipelines.packs import PackFolder
from schemas.documents import COPY_SCHEMA
from schemas.lake import MANIFEST, Folder, Lake, check_name
from schemas.manifest import Manifest, parsed_manifest
from schemas.messages import NotFoundError

PARTS_KEPT, GROUPS_KEPT = 32, 8  # hashes and footers of parts; row groups of 256 pictures
KEPT = {"cache-control": "private, max-age=600"}  # a picture may be forgotten: a browser asks again after ten minutes
UPLOAD_PX = 512  # of the longer side


def jpeg_of(lake: Lake, reference: str, image: str, part: str = "") -> bytes:
    """Return the bytes of a picture's copy. The manifest is looked at each time: what was forgotten is in no cache.

    Args:
        lake: that holds the version.
        reference: NAME@VERSION.
        image: content hash.
        part: path of the images part that holds it, as the manifest has it; "": any.

    Raises:
        NotFoundError: there is no such version or picture, or the lake has no copy of it.
    """
    name, _, version = reference.partition("@")
    folder = lake.dataset(check_name(name), check_name(version))
    if not folder.exists(MANIFEST):
        raise NotFoundError(f"{reference}: there is no such version")
    manifest = parsed_manifest(Manifest, folder, folder.stamp(MANIFEST))
    found = find_copies(lake, [image]).get(image) or _of_version(manifest, folder, image, part)
    if found is None:
        raise NotFoundError(f"{reference}: no copy of picture {image[:16]}")
    return found


def _of_version(manifest: Manifest, folder: Folder, image: str, part: str) -> bytes | None:
    entries = [entry.path for split in manifest.splits for entry in manifest.parts("images", split)]
    for path in entries if not part else [each for each in entries if each == part]:
        hashes, ends, metadata = _hashes(folder, path)
        row = pc.index(hashes, image).as_py()
        if row >= 0:
            number = int(np.searchsorted(ends, row, side="right"))
            start = ends[number - 1] if number else 0
            jpeg: bytes | None = _group(folder, path, metadata, number)[row - start].as_py()
            return jpeg
    return None


@lru_cache(PARTS_KEPT)
def _hashes(folder: Folder, path: str) -> tuple[pa.ChunkedArray, list[int], pq.FileMetaData]:
    """Return the hashes of a part, where each of its row groups ends, and its footer, which takes long to read."""
    with folder.open(path) as stream:
        file = pq.ParquetFile(stream)
        ends = accumulate(file.metadata.row_group(number).num_rows for number in range(file.num_row_groups))
        return file.read(columns=["hash"]).column(0), list(ends), file.metadata


@lru_cache(GROUPS_KEPT)
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


MAX_IMAGES, MAX_OCCURRENCES = 24, 12  # of a cluster; of an image


def find_copies(lake: Lake, hashes: Iterable[str], column: str = "jpeg") -> Mapping[str, Any]:
    """Return the 256-px JPEGs of images by content hash, by whichever settings they were made; some may be gone.

    Another column of `COPY_SCHEMA` is given instead where it is named.
    """
    found: dict[str, Any] = {}
    for method in lake.images.names():
        packs = PackFolder(lake.images.child(method), COPY_SCHEMA, "hash", ROWS_PER_GROUP)
        missing = sorted({*hashes} - found.keys())
        refs = {key: ref for key, ref in zip(missing, packs.index().find(missing), strict=True) if ref is not None}
        values = packs.read(list(refs.values()), [column]).column(column).to_pylist()
        found.update({key: value for key, value in zip(refs, values, strict=True) if value is not None})
    return found


def cluster_of(name: str, rows: pa.Table) -> dict[str, Any]:
    """Return a cluster by its rows: how many images and occurrences it has, and the first images with theirs."""
    hashes = sorted(pc.unique(rows.column("image")).to_pylist())
    images = [_image(content_hash, _rows(rows, "image", content_hash)) for content_hash in hashes[:MAX_IMAGES]]
    return {"name": name, "occurrences": len(rows), "image_count": len(hashes), "images": images}


def _image(content_hash: str, rows: pa.Table) -> dict[str, Any]:
    ordered = rows.sort_by([("document", "ascending"), ("position", "ascending")]).slice(0, MAX_OCCURRENCES).to_pylist()
    nearest, distance = ordered[0]["nearest"], ordered[0]["distance"]
    return {"hash": content_hash, "nearest": nearest, "distance": distance, "count": len(rows), "occurrences": ordered}


def _rows(table: pa.Table, column: str, value: str | bool) -> pa.Table:
    return table.filter(pc.equal(table.column(column), value))
