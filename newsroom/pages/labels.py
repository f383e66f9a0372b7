"""The page of labels: a picture drawn at random, the sentences of its document, and the question which one fits.

GET  /labels/NAME/VERSION/LINKS    the next picture that this person has not answered; `by`, `count`, `seed`
POST /labels/NAME/VERSION/LINKS    `row` and `answer`: the number of a sentence, none-fits or cannot-say
"""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from newsroom.decisions.records import MAX_WHO, Action, Decision
from newsroom.labels.label_sample import Frame, drawn_images, frame_of, label_of, labelled_rows, sample_of
from newsroom.labels.linked import DrawnDocument, LinkSet, find_links, link_sets, linked_documents
from newsroom.pages.access import form_of
from newsroom.pages.rendering import address, page
from newsroom.pages.state import Pages, Shared
from schemas.errors import UsageError
from schemas.lake import Folder
from schemas.manifest import Manifest, read_manifest
from schemas.metadata import plain_text

MOST = 5_000  # pictures of a sample
router = APIRouter(prefix="/labels")
Count = Annotated[int, Query(ge=1, le=MOST)]
Seed = Annotated[int, Query(ge=0, le=2**31)]


@router.get("/{dataset}/{version}/{name}")
def label(
    request: Request, shared: Shared, *, dataset: str, version: str, name: str,
    by: str = "", count: Count = 50, seed: Seed = 0,
) -> Response:  # fmt: skip
    """Show the next picture, or that there is none."""
    manifest, folder, links = _links(shared, dataset, version, name)
    frame, who = frame_of(links), _who(request, by)
    rows = drawn_images(frame, count, seed)
    answers = [each for each in shared.decisions.decisions(article=sample_of(links, seed)) if each.who == who]
    known = labelled_rows(frame, answers, links, manifest, folder)
    answered = {known[each.document, each.image] for each in answers}
    left = [row for row in rows if row not in answered]
    shown: tuple[int, int, DrawnDocument] | None = None
    if left:
        document, image = frame.image(left[0])
        (linked,) = linked_documents(links, manifest, folder, [document])
        shown = left[0], image, linked
    proposed = int(frame.sentences[left[0]]) if left else -1
    return page(
        request, "label.html.j2", manifest=manifest, name=name, shown=shown, proposed=proposed,
        done=len(rows) - len(left), total=len(rows), none_fits=Action.NONE_FITS, cannot_say=Action.CANNOT_SAY,
    )  # fmt: skip


@router.post("/{dataset}/{version}/{name}")
async def answer(
    request: Request, shared: Shared, *, dataset: str, version: str, name: str,
    by: str = "", count: Count = 50, seed: Seed = 0,
) -> Response:  # fmt: skip
    """Write an answer, and lead to the next picture."""
    form = {key: str(value) for key, value in (await form_of(request)).items()}
    who = _who(request, by)

    def write() -> Decision:
        manifest, folder, links = _links(shared, dataset, version, name)
        frame = frame_of(links)
        document, image = _asked(frame, form.get("row", ""), drawn_images(frame, count, seed))
        (linked,) = linked_documents(links, manifest, folder, [document])
        known = Decision(
            action=Action.CANNOT_SAY,
            image=linked.images[image],
            dataset=f"{dataset}@{version}",
            model=links.manifest.model,
            document=linked.drawn.id,
            who=who,
            article=sample_of(links, seed),
        )
        return shared.decisions.decide(label_of(form.get("answer", ""), sentences=linked.sentence_numbers, known=known))

    await run_in_threadpool(write)
    return RedirectResponse(address(request), 303)


def _links(shared: Pages, dataset: str, version: str, name: str) -> tuple[Manifest, Folder, LinkSet]:
    manifest, folder = read_manifest(shared.lake, f"{dataset}@{version}")
    return manifest, folder, find_links(link_sets(shared.lake, manifest), name)


def _asked(frame: Frame, row: str, rows: Sequence[int]) -> tuple[int, int]:
    if not (row.isascii() and row.isdigit() and int(row) in rows):
        raise UsageError(f"row: expected a picture of the sample, found {row[:40]!r}")
    return frame.image(int(row))


def _who(request: Request, by: str) -> str:
    """Return the name that a proxy gave, or else the one in the address."""
    return plain_text(getattr(request.state, "user", "") or by, MAX_WHO) or ""
