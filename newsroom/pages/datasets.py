"""The pages of data set versions: `/datasets` and `/links`.

The first show what a version is, samples of it, and what a build left out, joined or found to leak; the others its
documents with the links of one model, or of two side by side.
"""

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from markdown_it import MarkdownIt
from markupsafe import Markup

from newsroom.labels.linked import (
    DocumentFilter,
    DrawnDocument,
    LinkSet,
    Order,
    choices,
    chosen,
    find_links,
    link_sets,
    linked_documents,
    outcomes,
    readable,
    row_of_document,
    rows_at,
    sampled,
)
from newsroom.pages.pictures import cluster_of, find_copies
from newsroom.pages.rendering import address, document_pictures, page, paging, picture_address, root_of
from newsroom.pages.state import Number, Shared
from pipelines.card.card import README
from pipelines.card.show import failure_rows
from schemas.documents import Split
from schemas.duplicates import DUPLICATE_SCHEMA, LEAK_SCHEMA, LeakKind
from schemas.failures import Reason, Stage
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import FileEntry, Manifest, read_manifest, table_parts
from schemas.messages import UsageError
from training.report.examples import ExampleDocument, draw_example
from training.report.pages import drawing_style, drawn, edge_legend

IMAGES_COMPARED = 1_000  # of a cluster, each with each
IMAGE_LEAKS = pa.array([LeakKind.EXACT_IMAGE, LeakKind.NEAR_IMAGE], pa.string())
SAMPLED, FAILURES_SHOWN, PER_PAGE, COVERS_KEPT = 12, 100, 20, 256
SEEDS = 1 << 32
SAMPLE_COLUMNS = ("id", "language", "split", "sentences", "images", "links", "provenance")
VersionOrder = Literal["newest", "name"]
router = APIRouter()


def pictures_of(manifest: Manifest, folder: Folder, records: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the images for which documents were left out, by record: copies of others', or shared by splits."""
    found: dict[str, tuple[str, ...]] = {}
    wanted = pa.array(sorted({*records}), pa.string())
    for name, schema, column in (("duplicates", DUPLICATE_SCHEMA, "image"), ("leaks", LEAK_SCHEMA, "key")):
        rows = _table(manifest, folder, name, schema)
        rows = rows.filter(pc.is_in(rows.column("document"), wanted))
        is_shown = rows.column("is_dropped") if name == "duplicates" else pc.is_in(rows.column("kind"), IMAGE_LEAKS)
        for row in rows.filter(is_shown).select(["document", column]).to_pylist():
            found[row["document"]] = tuple(dict.fromkeys([*found.get(row["document"], ()), row[column]]))
    return found


def _table(manifest: Manifest, folder: Folder, name: str, schema: pa.Schema) -> pa.Table:
    parts = (part.select(schema.names).cast(schema) for part in table_parts(manifest, folder, name))
    return pa.concat_tables([schema.empty_table(), *parts])


def worst_pair(fingerprints: Mapping[str, str]) -> tuple[str, str, int] | None:
    """Return the two of some images whose 64-bit fingerprints (hexadecimal, by content hash) differ in most bits.

    And in how many.
    """
    names = sorted(fingerprints)
    if len(names) < 2:
        return None
    codes = np.array([int(fingerprints[name], 16) for name in names], np.uint64)
    bits = np.bitwise_count(codes[:, None] ^ codes[None, :])
    first, second = np.unravel_index(int(bits.argmax()), bits.shape)
    return names[first], names[second], int(bits[first, second])


@router.get("/datasets", name="datasets")
def overview(
    request: Request, shared: Shared, q: str = "", order: VersionOrder = "newest", number: Number = 1
) -> Response:
    """Show which versions of which data sets there are."""
    lake = shared.lake
    there = ((name, version) for name in lake.dataset_names() for version in lake.versions(name))
    return page(request, "datasets.html.j2", **listed(version_rows(lake, there), q, order, number))


def version_rows(lake: Lake, versions: Iterable[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield what a list says of versions; of one that is damaged the log has a line."""
    return readable(versions, partial(_version_row, lake), remedy="restore its files, or `multilink datasets delete`")


def _version_row(lake: Lake, named: tuple[str, str]) -> dict[str, Any]:
    """Return what a list says of a version: when it was made, what is in it, its first picture, if it is the latest."""
    dataset, version = named
    manifest, folder = read_manifest(lake, f"{dataset}@{version}")
    parts = [entry for split in Split for entry in manifest.parts("images", split) if entry.rows][:1]
    return {
        "manifest": manifest,
        "made": datetime.fromtimestamp(folder.stamp(MANIFEST)[1] / 1e9, UTC).isoformat(timespec="minutes")[:16],
        "documents": sum(row.documents for row in manifest.splits.values()),
        "images": sum(row.images for row in manifest.splits.values()),
        "cover": [picture_address(manifest.reference, each.path, _cover(folder, each)) for each in parts],
        "is_latest": version == lake.latest(dataset),
    }


@lru_cache(COVERS_KEPT)
def _cover(folder: Folder, part: FileEntry) -> str:
    return str(rows_at(folder, [(part, 0)], ["hash"])[0]["hash"])


def listed(rows: Iterable[dict[str, Any]], q: str, order: VersionOrder, number: int) -> dict[str, Any]:
    """Return a page of the versions whose names contain a text, in order, and what was asked for."""
    found = [row for row in rows if q.strip().casefold() in row["manifest"].reference.casefold()]
    found.sort(key=lambda row: row["made"], reverse=True)
    if order == "name":
        found.sort(key=lambda row: row["manifest"].dataset)
    place = paging(number, len(found), PER_PAGE)
    return {"rows": found[place["start"] : place["end"]], "q": q, "order": order, **place}


@router.get("/datasets/{dataset}/{version}", name="dataset")
def shown(request: Request, shared: Shared, dataset: str, version: str) -> Response:
    """Show what a version is: its splits, its stages, its card."""
    manifest, folder = read_manifest(shared.lake, f"{dataset}@{version}")
    card = folder.read(README).decode(errors="replace") if folder.exists(README) else ""
    stages = {stage: manifest.stages[stage] for stage in Stage if stage in manifest.stages}
    splits = {split: manifest.splits[split] for split in Split if split in manifest.splits}
    return _page(request, "dataset", manifest, stages=stages, splits=splits, card=rendered(card))


@router.get("/datasets/{dataset}/{version}/samples", name="samples")
def samples(
    request: Request,
    shared: Shared,
    *,
    dataset: str,
    version: str,
    split: Split | None = None,
    seed: Annotated[int | None, Query(ge=0, lt=SEEDS)] = None,
) -> Response:
    """Show documents at random; the draw is in the address."""
    if seed is None:
        return RedirectResponse(address(request, seed=str(secrets.randbelow(SEEDS))), 303)
    manifest, folder = read_manifest(shared.lake, f"{dataset}@{version}")
    places = sampled(manifest, count=SAMPLED, seed=seed, split=split or "")
    rows = rows_at(folder, places, SAMPLE_COLUMNS)
    documents = [
        row | {"pictures": document_pictures(manifest.reference, entry.path, row["images"])}
        for (entry, _), row in zip(places, rows, strict=True)
    ]
    return _page(request, "samples", manifest, documents=documents, seed=seed, split=split, again=(seed + 1) % SEEDS)


@router.get("/datasets/{dataset}/{version}/failures", name="failures")
def failures(request: Request, shared: Shared, dataset: str, version: str, reason: Reason | None = None) -> Response:
    """Show what was left out, by reason, with examples."""
    manifest, folder = read_manifest(shared.lake, f"{dataset}@{version}")
    rows, total = failure_rows(manifest, folder, reason=reason, stage=None, limit=FAILURES_SHOWN)
    pictures = pictures_of(manifest, folder, [row["record_id"] for row in rows])
    return _page(request, "failures", manifest, rows=rows, total=total, reason=reason, pictures=pictures)


@router.get("/datasets/{dataset}/{version}/duplicates", name="duplicates")
def duplicates(request: Request, shared: Shared, dataset: str, version: str, number: Number = 1) -> Response:
    """Show clusters of near-duplicates: those whose images differ most from their nearest first.

    Each is that of `newsroom.pages.pictures.cluster_of`, with its `worst` pair: None where it is one image that
    occurs several times, or fingerprints are gone from the lake.
    """
    manifest, folder = read_manifest(shared.lake, f"{dataset}@{version}")
    rows, found = _table(manifest, folder, "duplicates", DUPLICATE_SCHEMA), []
    sizes = rows.group_by("cluster").aggregate([("distance", "max"), ([], "count_all")])
    keys = [("distance_max", "descending"), ("count_all", "descending"), ("cluster", "ascending")]
    place = paging(number, sizes.num_rows, PER_PAGE)
    for name in sizes.sort_by(keys).slice(place["start"], PER_PAGE).column("cluster").to_pylist():
        own = rows.filter(pc.equal(rows.column("cluster"), name))
        images = sorted(pc.unique(own.column("image")).to_pylist())[:IMAGES_COMPARED]
        found.append(cluster_of(name, own) | {"worst": worst_pair(find_copies(shared.lake, images, "fingerprint"))})
    return _page(request, "duplicates", manifest, clusters=found, total=sizes.num_rows, **place)


@router.get("/datasets/{dataset}/{version}/leaks", name="leaks")
def leaked(
    request: Request, shared: Shared, *, dataset: str, version: str, kind: LeakKind | None = None, number: Number = 1
) -> Response:
    """Show what documents of different splits share."""
    manifest, folder = read_manifest(shared.lake, f"{dataset}@{version}")
    rows = _table(manifest, folder, "leaks", LEAK_SCHEMA).sort_by([("kind", "ascending"), ("key", "ascending")])
    counted = rows.column("kind").value_counts().to_pylist()
    kinds = {row["values"]: row["counts"] for row in counted}  # in the order of the rows
    if kind:
        rows = rows.filter(pc.equal(rows.column("kind"), kind))
    place = paging(number, rows.num_rows, PER_PAGE)
    some = rows.slice(place["start"], PER_PAGE).to_pylist()
    return _page(request, "leaks", manifest, rows=some, kinds=kinds, kind=kind, **place)


def rendered(card: str) -> Markup:
    """Return a version's card (Markdown) as HTML: its text escaped, without the data before it and its own title."""
    text = card.partition("\n---\n")[2] if card.startswith("---\n") else card
    text = text.lstrip().partition("\n")[2] if text.lstrip().startswith("# ") else text
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = markdown.parse(text)
    for token in tokens:
        if "style" in token.attrs:  # text-align:right, of a column of a table: the pages' policy forbids a style here
            token.attrs["class"] = str(token.attrs.pop("style")).partition(":")[2]
    return Markup(markdown.renderer.render(tokens, markdown.options, {}).replace("<pre>", '<pre tabindex="0">'))


def _page(request: Request, template: str, manifest: Manifest, **content: Any) -> Response:
    home = f"/datasets/{manifest.dataset}/{manifest.version}"
    return page(request, f"{template}.html.j2", manifest=manifest, home=home, at=template, **content)


LINKED_PER_PAGE = 10
DAY_S = 86_400


@router.get("/links", name="links")
def versions(
    request: Request, shared: Shared, q: str = "", order: VersionOrder = "newest", number: Number = 1
) -> Response:
    """Show which data set versions were linked, and by whom."""
    lake, home = shared.lake, shared.lake.root.child("links")
    there = ((name, version) for name in home.names() for version in home.child(name).names())
    rows = version_rows(lake, ((name, version) for name, version in there if version in lake.versions(name)))
    found = [row | {"sets": sets} for row in rows if (sets := link_sets(lake, row["manifest"]))]
    return page(request, "links.html.j2", **listed(found, q, order, number))


@router.get("/links/drawing.css")
def style() -> Response:
    """Give the style sheet of the report's drawings."""
    return Response(drawing_style(), media_type="text/css", headers={"cache-control": f"max-age={DAY_S}"})


@router.get("/links/{dataset}/{version}", name="linked")
def linked(
    request: Request,
    shared: Shared,
    *,
    dataset: str,
    version: str,
    model: str = "",
    other: str = "",
    order: Order = Order.RIGHT,
    split: str | None = None,
    language: str = "",
    relation: str = "",
    errors: bool = False,
    threshold: Annotated[float, Query(ge=0, le=1)] = 0.0,
    number: Number = 1,
) -> Response:
    """Show documents with their links, ten at a time."""
    manifest, folder = read_manifest(shared.lake, f"{dataset}@{version}")
    sets = link_sets(shared.lake, manifest)
    if not sets:
        raise UsageError(f"{dataset}@{version}: no model has linked it; `multilink link --dataset` does")
    compared = [find_links(sets, name) for name in dict.fromkeys((model or sets[0].name, other)) if name]
    table = outcomes(compared[0])
    options = choices(compared[0])
    if split is None:  # documents that the model was not trained on
        split = next((each for each in (Split.TEST, Split.VAL) if each in options["split"]), "")
    which = DocumentFilter(split=split, language=language, relation=relation, has_error=errors)
    rows = chosen(compared[0], which, order)
    place = paging(number, len(rows), LINKED_PER_PAGE)
    some = rows[place["start"] : place["end"]].tolist()
    examples = [_documents(links, compared[0], manifest, folder, some) for links in compared]
    graphs = [
        [None if each is None else draw_example(_drawn(each, manifest, root_of(request))) for each in own]
        for own in examples
    ]
    shown = table.take(pa.array(some, pa.int64())).select(["document", "split", "language"]).to_pylist()
    documents = [
        row
        | {
            "drawings": [
                None if (graph := own[at]) is None else drawn(graph, f"{at + 1 + place['start']}", threshold=threshold)
                for own in graphs
            ],
        }
        for at, row in enumerate(shown)
    ]
    return page(
        request,
        "linked.html.j2",
        manifest=manifest, sets=sets, compared=compared, options=options, orders=list(Order),
        filters={"order": order, "split": split, "language": language, "relation": relation, "errors": errors},
        threshold=threshold, count=len(rows), total=table.num_rows, documents=documents, **place,
        legend=edge_legend(graph for own in graphs for graph in own if graph is not None),
    )  # fmt: skip


def _documents(
    links: LinkSet, first: LinkSet, manifest: Manifest, folder: Folder, rows: Sequence[int]
) -> list[DrawnDocument | None]:
    """Return documents, by their rows in what came of the first model's, as another model linked them."""
    if links is first:
        return list(linked_documents(links, manifest, folder, rows))
    ids = outcomes(first).column("document").take(pa.array(rows, pa.int64())).to_pylist()
    own = [row_of_document(outcomes(links), each) for each in ids]
    there = linked_documents(links, manifest, folder, [row for row in own if row is not None])
    by_id = {each.drawn.id: each for each in there}
    return [by_id.get(each) for each in ids]


def _drawn(found: DrawnDocument, manifest: Manifest, root: str) -> ExampleDocument:
    """Return a document with the addresses of its pictures, below the root that a proxy shows the pages at."""
    images = (root + picture_address(manifest.reference, found.part, image) for image in found.images)
    return replace(found.drawn, images=tuple(images))
