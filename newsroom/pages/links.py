"""The link viewer: the documents of a version with the links of one model, or of two side by side; corrections.

A correction is a decision in the log (`newsroom.decisions`): that a link is right, or that it is wrong.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from newsroom.decisions.records import Action, Decision, standing
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
from newsroom.pages.rendering import address, page, paging, picture_address, root_of
from newsroom.pages.state import Field, Number, Pages, Shared, Visitor
from schemas.documents import Split, indexes
from schemas.errors import UsageError
from schemas.lake import Folder
from schemas.manifest import Manifest, read_manifest
from training.report.examples import ExampleDocument, draw_example
from training.report.pages import drawing_style, drawn, edge_legend

Link = tuple[str, int, str]  # document, number of the sentence, content hash of the image
_CORRECTION = re.compile(r"(\d{1,6})-(\d{1,6})-(right|wrong)")
PER_PAGE = 10
DAY_S = 86_400
router = APIRouter(prefix="/links")


def corrections_of(shared: Pages, manifest: Manifest, documents: Collection[str]) -> dict[Link, Decision]:
    """Return the last correction of each link of some documents of a version."""
    found = shared.store.corrections(manifest.reference, documents)
    return {(each.document, each.sentence or 0, each.image): each for each in standing(found)}


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
    corrections = corrections_of(shared, manifest, [each.drawn.id for each in examples[0] if each])
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
            "corrections": _correctable([own[at] for own in examples], corrections),
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


@router.post("/{dataset}/{version}/corrections", name="corrected")
def corrected(
    request: Request, shared: Shared, who: Visitor, *, dataset: str, version: str, model: Field = "",
    document: Field = "", correction: Field = "", sentence: Field = "", image: Field = "",
) -> Response:  # fmt: skip
    """Take down that a link of a document is right or wrong.

    It is named by its indexes in the document that is shown: a `correction`, as SENTENCE-IMAGE-right or
    SENTENCE-IMAGE-wrong, or a `sentence` and an `image` that go together.
    """
    manifest, folder = read_manifest(shared.lake, f"{dataset}@{version}")
    links = find_links(link_sets(shared.lake, manifest), model)
    row = row_of_document(outcomes(links), document)
    if row is None:
        raise UsageError(f"no document {document[:80]!r} among those that {model} linked")
    (found,) = linked_documents(links, manifest, folder, [row])
    asked = _CORRECTION.fullmatch(correction or f"{sentence}-{image}-{Action.RIGHT}")
    sentences, images = len(found.drawn.sentences), len(found.images)
    if asked is None or int(asked[1]) >= sentences or int(asked[2]) >= images:
        raise UsageError(f"expected a link of one of {sentences} sentences and {images} images")
    shared.store.decide(
        Decision(
            action=Action(asked[3]), image=found.images[int(asked[2])], dataset=manifest.reference,
            model=links.manifest.model, document=document, sentence=found.sentence_numbers[int(asked[1])], who=who,
        )
    )  # fmt: skip
    corrections = _correctable([found], corrections_of(shared, manifest, [document]))
    if "hx-request" in request.headers:
        given: dict[str, Any] = {"manifest": manifest, "model": model, "document": document, "corrections": corrections}
        return page(request, "corrections.html.j2", **given, is_open=True)
    back = address(request, f"/links/{manifest.dataset}/{manifest.version}", model=model)
    return RedirectResponse(back, 303)


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


def _correctable(found: Sequence[DrawnDocument | None], corrections: Mapping[Link, Decision]) -> dict[str, Any]:
    """Return the links of a document that a person may confirm or deny, each with its correction."""
    there = [each for each in found if each is not None]
    first, document = there[0], there[0].drawn.id
    number = {image: place for place, image in enumerate(first.images)}
    numbers = first.sentence_numbers
    texts = indexes(numbers)
    pairs = {(link[0], link[1]) for each in there for link in each.drawn.predicted}
    pairs |= {link for each in there for link in each.drawn.links or ()}
    pairs |= {
        (texts[s], number[image]) for own, s, image in corrections if own == document and s in texts and image in number
    }
    return {
        "sentences": len(first.drawn.sentences),
        "images": len(first.images),
        "links": [(s, i, corrections.get((document, numbers[s], first.images[i]))) for s, i in sorted(pairs)],
    }
