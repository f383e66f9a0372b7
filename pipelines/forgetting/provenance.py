"""Everything that a lake knows of one document: where it is, what it was made of, and what was made of it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.forgetting.holdings import made_of
from pipelines.packs import packs_with
from pipelines.raw import index_rows
from pipelines.sources.takedowns import url_key
from schemas.errors import NotFoundError
from schemas.lake import Folder, Lake
from schemas.links import read_links
from schemas.manifest import Manifest, read_manifest, table_parts
from schemas.parts import read_part
from schemas.raw import retrieval_tables

_ANSWER = ("kind", "url", "final_url", "status", "media_type", "fetched_at", "digest", "reason", "message", "opt_outs")
_IMAGE = (
    "hash",
    "source",
    "format",
    "width",
    "height",
    "original_bytes",
    "fingerprint",
    "licence",
    "metadata",
    "rights",
)


def provenance(lake: Lake, reference: str, document: str) -> dict[str, Any]:
    """Return everything known of a document of `NAME` (in all its versions) or `NAME@VERSION`.

    Raises:
        NotFoundError: no such version, or none of them holds the document.
    """
    name, version = lake.find(reference)
    wanted = [version] if "@" in reference else lake.versions(name)
    held = [found for each in wanted if (found := _in_version(lake, f"{name}@{each}", document)) is not None]
    if not held:
        raise NotFoundError(f"{reference}: no document {document!r} in {', '.join(wanted)}")
    addresses = {url for found in held for url in _addresses(found)}
    digests = {image["hash"] for found in held for image in found["images"]}
    return {
        "document": document,
        "dataset": name,
        "versions": held,
        "answers": sorted(_answers(lake.raw, addresses, digests), key=lambda each: (each["fetched_at"], each["url"])),
        "packs": sorted(path for path, *_ in packs_with(lake, {"hash": digests, "key": digests})),
    }


def _in_version(lake: Lake, reference: str, document: str) -> dict[str, Any] | None:
    """Return what a version holds of a document, None where it does not hold it."""
    manifest, folder = read_manifest(lake, reference)
    for entry in manifest.parts("documents"):
        table = read_part(folder, entry, ("id", "language", "split", "sentences", "images", "links", "provenance"))
        rows = table.filter(pc.equal(table["id"], document)).to_pylist()
        if rows:
            row = rows[0]
            images = _images(folder, manifest, entry.path, [image["hash"] for image in row["images"]])
            return {
                **row,
                "version": manifest.version,
                "is_latest": lake.latest(manifest.dataset) == manifest.version,
                "part": entry.path,
                "images": [{**image, **images.get(image["hash"], {})} for image in row["images"]],
                "retrieved": list(_times(lake, manifest, {document, *images})),
                "failures": _rows(manifest, folder, "failures", "record_id", document),
                "duplicates": _rows(manifest, folder, "duplicates", "document", document),
                "made_with": [f"code {manifest.inputs.get('code', '')[:12]}", *_columns(manifest)],
                "links": list(_links(lake, manifest, document)),
                "indexes": made_of(lake, "indexes", manifest.dataset, manifest.version),
            }
    return None


def _images(folder: Folder, manifest: Manifest, path: str, hashes: list[str]) -> dict[str, dict[str, Any]]:
    (entry,) = (each for each in manifest.files if each.path == path.replace("documents/", "images/", 1))
    table = read_part(folder, entry, _IMAGE)
    shown = table.filter(pc.is_in(table["hash"], pa.array(hashes, pa.string())))
    return {row["hash"]: row for row in shown.to_pylist()}


def _columns(manifest: Manifest) -> Iterator[str]:
    for table in ("images", "documents"):
        for column in manifest.columns(table):
            yield f"{column.column} of {table} ({column.describe()}, {column.fingerprint[:16]})"


def _rows(manifest: Manifest, folder: Folder, table: str, column: str, document: str) -> list[dict[str, Any]]:
    """Return the rows of a table that are about a document, or about an image of it."""
    parts_of_table = table_parts(manifest, folder, table)
    return [row for part in parts_of_table for row in part.filter(pc.equal(part[column], document)).to_pylist()]


def _times(lake: Lake, manifest: Manifest, keys: set[str]) -> Iterator[dict[str, Any]]:
    folder = lake.retrievals(manifest.dataset, manifest.version)
    for table in retrieval_tables(folder):
        for row in table.to_pylist():
            if row["key"] in keys or row["kind"] == "input":
                yield {**row, "retrieved": row["retrieved"].isoformat()}


def _links(lake: Lake, manifest: Manifest, document: str) -> Iterator[dict[str, Any]]:
    """Yield the folders of links that have some of a document, or would if there were any."""
    for path in made_of(lake, "links", manifest.dataset, manifest.version):
        folder = lake.root.child(*path.split("/"))
        links = read_links(folder)
        parts = [entry for entry in links.files if entry.path.startswith("links/")]
        tables = [read_part(folder, entry, ["document"]) for entry in parts]
        number = sum(pc.sum(pc.equal(table["document"], document)).as_py() or 0 for table in tables)
        yield {"path": path, "model": links.model, "links": number}


def _addresses(held: dict[str, Any]) -> Iterator[str]:
    yield held["provenance"]["url"] or ""
    yield from (image["source"] or "" for image in held["images"])
    for row in held["retrieved"]:
        yield from filter(None, (row["url"], row.get("captured")))


def _answers(raw: Folder, addresses: set[str], digests: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the raw store's indexes with one of these addresses or digests."""
    keys = set(filter(None, map(url_key, addresses)))
    for source, row in index_rows(raw, _ANSWER):
        if row["digest"] in digests or not keys.isdisjoint(map(url_key, (row["url"], row["final_url"] or ""))):
            yield {**row, "source": source}
