"""The page of labels: a picture drawn at random, the sentences of its document, and the question which one fits.

GET  /labels/NAME/VERSION/LINKS    the next picture that this person has not answered; `by`, `count`, `seed`; `row`: a
                                   picture, to change its answer; `last`: the one that was answered, whose proposal is
                                   shown now
POST /labels/NAME/VERSION/LINKS    `row` and `answer`: the number of a sentence, none-fits or cannot-say
"""

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from newsroom.decisions.records import MAX_WHO, Action, Decision
from newsroom.labels.label_sample import drawn_images, frame_of, label_of, pictures_of, sample_of
from newsroom.labels.linked import DrawnDocument, LinkSet, find_links, link_sets, linked_documents
from newsroom.pages.rendering import address, page
from newsroom.pages.state import Pages, Shared, Visitor
from schemas.lake import Folder
from schemas.manifest import Manifest, read_manifest
from schemas.messages import UsageError
from schemas.metadata import plain_text

MOST = 5_000  # pictures of a sample
router = APIRouter(prefix="/labels")
Count = Annotated[int, Query(ge=1, le=MOST)]
Seed = Annotated[int, Query(ge=0, le=2**31)]


@router.get("/{dataset}/{version}/{name}")
def label(
    request: Request, shared: Shared, who: Visitor, *, dataset: str, version: str, name: str,
    by: str = "", count: Count = 50, seed: Seed = 0, row: int | None = None, last: int | None = None,
) -> Response:  # fmt: skip
    """Show the next picture without an answer, or one that is named; and the answer that was given last."""
    manifest, folder, links = _links(shared, dataset, version, name)
    frame, who = frame_of(links), who or plain_text(by, MAX_WHO) or ""
    rows = drawn_images(frame, count, seed)
    answers = [each for each in shared.store.decisions(article=sample_of(links, seed)) if each.who == who]
    of_picture = {(each.document, each.image): each for each in answers}
    pictures = pictures_of(frame, answers, links, manifest, folder)
    answered = {row: of_picture[each] for row, each in pictures.items() if each in of_picture}
    left = [each for each in rows if each not in answered]
    at = row if row in rows else next(iter(left), None)
    shown: dict[str, Any] | None = None
    if at is not None:
        document, image = frame.image(at)
        (linked,) = linked_documents(links, manifest, folder, [document])
        order = _in_order(linked)
        shown = {"row": at, "image": image, "document": linked, "order": order, "answer": answered.get(at)}
    before = [each for each in rows[: rows.index(at) if at in rows else len(rows)] if each in answered]
    return page(
        request, "label.html.j2", manifest=manifest, name=name, shown=shown, last_row=last,
        last=None if last is None else answered.get(last),
        proposed=int(frame.sentences[last]) if last in answered else -1, back=before[-1] if before else None,
        done=len(rows) - len(left), total=len(rows), none_fits=Action.NONE_FITS, cannot_say=Action.CANNOT_SAY,
    )  # fmt: skip


@router.post("/{dataset}/{version}/{name}")
def answer(
    request: Request, shared: Shared, who: Visitor, *, dataset: str, version: str, name: str,
    row: Annotated[int, Form()], by: str = "", count: Count = 50, seed: Seed = 0,
    said: Annotated[str, Form(alias="answer")] = "",
) -> Response:  # fmt: skip
    """Write an answer, and lead to the next picture."""
    manifest, folder, links = _links(shared, dataset, version, name)
    frame = frame_of(links)
    if row not in drawn_images(frame, count, seed):
        raise UsageError(f"row: expected a picture of the sample, found {row}")
    document, image = frame.image(row)
    (linked,) = linked_documents(links, manifest, folder, [document])
    known = Decision(
        action=Action.CANNOT_SAY,
        image=linked.images[image],
        dataset=f"{dataset}@{version}",
        model=links.manifest.model,
        document=linked.drawn.id,
        who=who or plain_text(by, MAX_WHO) or "",
        article=sample_of(links, seed),
    )
    shared.store.decide(label_of(said, sentences=linked.sentence_numbers, known=known))
    return RedirectResponse(address(request, row=None, last=str(row)), 303)


def _links(shared: Pages, dataset: str, version: str, name: str) -> tuple[Manifest, Folder, LinkSet]:
    manifest, folder = read_manifest(shared.lake, f"{dataset}@{version}")
    return manifest, folder, find_links(link_sets(shared.lake, manifest), name)


def _in_order(linked: DrawnDocument) -> list[list[int]]:
    """Return the images that stand before each sentence of a document, and behind the last, by their indexes in it.

    Images of which a source does not say where they stand are behind the last sentence.
    """
    behind = len(linked.drawn.sentences)
    order: list[list[int]] = [[] for _ in range(behind + 1)]
    for image, place in enumerate(linked.after):
        order[behind if place is None else min(place, behind)].append(image)
    return order
