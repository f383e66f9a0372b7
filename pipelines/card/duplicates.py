"""The clusters of near-duplicate pictures of a version, for a page: bounded however large the data set."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.images.inspect import ROWS_PER_GROUP
from pipelines.packs import PackFolder
from schemas.documents import COPY_SCHEMA
from schemas.lake import Lake

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
