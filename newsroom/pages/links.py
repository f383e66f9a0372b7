"""The link viewer: the documents of a version with the links of one model, or of two side by side."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

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
    row_of_document,
)
from newsroom.pages.datasets import VersionOrder, listed, version_rows
from newsroom.pages.rendering import page, paging, picture_address, root_of
from newsroom.pages.state import Number, Shared
from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest, read_manifest
from schemas.messages import UsageError
from training.report.examples import ExampleDocument, draw_example
from training.report.pages import drawing_style, drawn, edge_legend

PER_PAGE = 10
DAY_S = 86_400
router = APIRouter(prefix="/links")


@router.get("", name="links")
def versions(
    request: Request, shared: Shared, q: str = "", order: VersionOrder = "newest", number: Number = 1
) -> Response:
    """Show which data set versions were linked, and by whom."""
    lake, home = shared.lake, shared.lake.root.child("links")
    there = ((name, version) for name in home.names() for version in home.child(name).names())
    rows = version_rows(lake, ((name, version) for name, version in there if version in lake.versions(name)))
    found = [row | {"sets": sets} for row in rows if (sets := link_sets(lake, row["manifest"]))]
    return page(request, "links.html.j2", **listed(found, q, order, number))


@router.get("/drawing.css")
def style() -> Response:
    """Give the style sheet of the report's drawings."""
    return Response(drawing_style(), media_type="text/css", headers={"cache-control": f"max-age={DAY_S}"})


@router.get("/{dataset}/{version}", name="linked")
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
    place = paging(number, len(rows), PER_PAGE)
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
