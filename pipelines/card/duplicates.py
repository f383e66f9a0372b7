"""The duplicates of a version as one HTML page: each cluster's pictures side by side, with where they occur.

One file that needs nothing else: styles inline, pictures as data URIs, no script. Its layout is in
`duplicates.html.j2`. The page is bounded however large the data set: it shows the clusters with most occurrences, of a
cluster its first images, of an image its first occurrences, and says what it leaves out.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.card.card import render
from pipelines.images.inspect import ROWS_PER_GROUP
from pipelines.packs import PackFolder
from schemas.documents import COPY_SCHEMA
from schemas.lake import Lake

MAX_CLUSTERS, MAX_IMAGES, MAX_OCCURRENCES = 100, 24, 12  # on the page; in a cluster; of an image


def duplicates_page(duplicates: pa.Table, lake: Lake, *, title: str) -> str:
    """Return the page of a data set's duplicates.

    Args:
        duplicates: rows of DUPLICATE_SCHEMA.
        lake: whose packs have the pictures: those of dropped documents are in no shard.
        title: of the page.
    """
    sizes = duplicates.group_by("cluster").aggregate([([], "count_all")])
    largest = sizes.sort_by([("count_all", "descending"), ("cluster", "ascending")]).slice(0, MAX_CLUSTERS)
    clusters = [cluster_of(name, _rows(duplicates, "cluster", name)) for name in largest.column("cluster").to_pylist()]
    pictures = find_copies(lake, [image["hash"] for cluster in clusters for image in cluster["images"]])
    for cluster in clusters:
        for image in cluster["images"]:
            image["picture"] = base64.b64encode(pictures.get(image["hash"], b"")).decode()
    counts = {f"{name}s": _distinct(duplicates, name) for name in ("image", "document")}
    return render(
        "duplicates.html.j2",
        title=title,
        clusters=clusters,
        occurrences=len(duplicates),
        cluster_count=len(sizes),
        dropped=_distinct(_rows(duplicates, "is_dropped", True), "document"),
        **counts,
    )


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


def _distinct(table: pa.Table, column: str) -> int:
    return int(pc.count_distinct(table.column(column)).as_py())
