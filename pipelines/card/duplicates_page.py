"""The duplicates of a data set as one HTML page: each cluster's pictures side by side, with where they occur.

One file that needs nothing else: styles inline, pictures as data URIs, no script. What comes from the data is escaped.
The page is bounded however large the data set: it shows the clusters with most occurrences, of a cluster its first
pictures, of a picture its first places, and says what it leaves out.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

MAX_CLUSTERS, MAX_PICTURES, MAX_PLACES = 100, 24, 12  # on the page; in a cluster; of a picture

Pictures = Callable[[str], bytes | None]

_KINDS = {b"\xff\xd8": "image/jpeg", b"\x89PNG": "image/png", b"GIF8": "image/gif", b"RIFF": "image/webp"}
_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff }
section { border-top: 1px solid #ccc; padding: 1rem 0 }
h2 { font-size: 1rem; font-weight: 600; overflow-wrap: anywhere }
.side-by-side { display: flex; flex-wrap: wrap; gap: 1rem }
figure { margin: 0; width: 240px }
img, .missing { width: 240px; height: 180px; object-fit: contain; background: #f3f3f3 }
.missing { display: flex; align-items: center; justify-content: center; color: #777 }
ul { margin: .3rem 0; padding-left: 1.1rem; overflow-wrap: anywhere }
code { font-size: .85em } .note { color: #666 } .dropped { color: #a02020 } .kept { color: #206020 }
"""


def write_duplicates_page(duplicates: pa.Table, pictures: Pictures, path: Path, *, title: str = "Duplicates") -> Path:
    """Write the page of a data set's duplicates, whole or not at all, and return its path.

    Args:
        duplicates: rows of DUPLICATE_SCHEMA.
        pictures: gives the file of an image by its content hash; None where there is none.
        path: of the page.
        title: of the page.
    """
    page = "\n".join(_page(duplicates, pictures, title))
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.tmp")
    fresh.write_text(page, encoding="utf-8")
    return fresh.replace(path)


def _page(duplicates: pa.Table, pictures: Pictures, title: str) -> Iterator[str]:
    yield f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}</title>'
    yield f"<style>{_STYLE}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n<p>{_summary(duplicates)}</p>"
    sizes = duplicates.group_by("cluster").aggregate([([], "count_all")])
    order = [("count_all", "descending"), ("cluster", "ascending")]
    largest = sizes.sort_by(order).slice(0, MAX_CLUSTERS).column("cluster").to_pylist()
    if len(sizes) > len(largest):
        yield _note(f"Only the {len(largest):,} clusters with most occurrences are shown, of {len(sizes):,}.")
    for cluster in largest:
        yield from _section(cluster, _rows(duplicates, "cluster", cluster), pictures)
    yield "</body>\n</html>\n"


def _summary(duplicates: pa.Table) -> str:
    clusters, images, documents = (_distinct(duplicates, name) for name in ("cluster", "image", "document"))
    dropped = _distinct(_rows(duplicates, "is_dropped", True), "document")
    return (
        f"{len(duplicates):,} occurrences of {images:,} images in {documents:,} documents make {clusters:,} clusters; "
        f"{dropped:,} documents are dropped."
    )


def _section(cluster: str, rows: pa.Table, pictures: Pictures) -> Iterator[str]:
    images = sorted(pc.unique(rows.column("image")).to_pylist())
    yield f"<section>\n<h2>{len(rows):,} occurrences of {len(images):,} images <code>{escape(cluster)}</code></h2>"
    yield '<div class="side-by-side">'
    for image in images[:MAX_PICTURES]:
        yield from _figure(image, _rows(rows, "image", image), pictures(image))
    yield "</div>"
    if len(images) > MAX_PICTURES:
        yield _note(f"{len(images) - MAX_PICTURES:,} more images of this cluster are not shown.")
    yield "</section>"


def _figure(image: str, rows: pa.Table, picture: bytes | None) -> Iterator[str]:
    places = rows.sort_by([("document", "ascending"), ("position", "ascending")]).slice(0, MAX_PLACES).to_pylist()
    yield f"<figure>\n{_picture(image, picture)}\n<figcaption>"
    yield f'<code title="{escape(image)}">{escape(image[:12])}</code> {_distance(places[0])}\n<ul>'
    for place in places:
        fate = "dropped" if place["is_dropped"] else "kept"
        where = f"{escape(place['document'])}, position {place['position']}"
        yield f'<li>{where}: <span class="{fate}">{fate}</span></li>'
    yield "</ul>"
    if len(rows) > len(places):
        yield _note(f"and {len(rows) - len(places):,} more places")
    yield "</figcaption>\n</figure>"


def _picture(image: str, picture: bytes | None) -> str:
    if picture is None:
        return '<div class="missing">no picture kept</div>'
    kind = next((kind for start, kind in _KINDS.items() if picture.startswith(start)), "application/octet-stream")
    return f'<img alt="{escape(image[:12])}" src="data:{kind};base64,{base64.b64encode(picture).decode()}">'


def _distance(place: dict[str, str]) -> str:
    """Return how far the picture is from its nearest other member."""
    if place["nearest"] == place["image"]:
        return "occurs again"
    return f"distance {place['distance']} from <code>{escape(place['nearest'][:12])}</code>"


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _rows(table: pa.Table, column: str, value: str | bool) -> pa.Table:
    return table.filter(pc.equal(table.column(column), value))


def _distinct(table: pa.Table, column: str) -> int:
    return int(pc.count_distinct(table.column(column)).as_py())
