"""Decisions on pictures: what the buttons below each picture do, and the log of what was decided.

POST /decisions    writes one on a picture that the page `then` shows: `image`, `action`, and for a rejection `reason`
GET  /decisions    the log, the newest first; `before=NUMBER` goes on
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from orchestration.pages.articles import copy_of
from orchestration.pages.rendering import own_path, page
from orchestration.pages.shown import pictures_of, shown_at
from orchestration.pages.state import Pages, Shared
from orchestration.pages.writes import form_of
from schemas.decisions import MAX_NOTE, MAX_WHO, Action, Decision, Objection
from schemas.errors import UsageError
from schemas.metadata import plain_text

NAV = ("decisions.nav", "/decisions")
AT_ONCE = 100  # decisions on a page
_FIELDS = ("then", "image", "action", "reason", "note")
Member = TypeVar("Member", bound=StrEnum)
router = APIRouter()


@router.post("/decisions")
async def decide(request: Request, shared: Shared) -> Response:
    """Write a decision; answer with the picture's buttons as they are now, or lead back to the page."""
    form = await form_of(request)
    given = {name: str(form.get(name, "")) for name in _FIELDS}
    user = getattr(request.state, "user", "")
    made = await run_in_threadpool(_decided, shared, given, user)
    then = own_path(given["then"])
    if "hx-request" in request.headers:
        return page(request, "decided.html.j2", image=made.image, then=then, said=made, reasons=list(Objection))
    return RedirectResponse(f"{then}#decide-{made.image[:12]}", 303)


@router.get("/decisions")
def decisions(request: Request, shared: Shared, before: int | None = None) -> Response:
    """Show the log; of a blind comparison without the model that gave the picture."""
    found = shared.decisions.latest(AT_ONCE, before=before)
    rankings = shared.decisions.rankings(each.ranking for each in found if each.ranking)
    datasets = {each.dataset for each in found}
    pictures = {
        (dataset, image): known
        for dataset in sorted(datasets)
        for image, known in pictures_of(shared, dataset, (d.image for d in found if d.dataset == dataset)).items()
    }
    return page(
        request, "decisions.html.j2", decisions=found, rankings=rankings, pictures=pictures, copy_of=copy_of,
        own_path=own_path, is_more=len(found) == AT_ONCE,
    )  # fmt: skip


def _decided(shared: Pages, given: Mapping[str, str], user: str) -> Decision:
    ranking = shown_at(shared, own_path(given["then"]))
    action = _member(Action, given["action"], "action")
    decision = Decision(
        action=action,
        image=given["image"],
        dataset=ranking.dataset,
        model="" if ranking.is_blind else ranking.models[0],
        reason=_member(Objection, given["reason"], "reason") if action is Action.REJECT else None,
        note=plain_text(given["note"], MAX_NOTE) or "",
        who=plain_text(user, MAX_WHO) or "",
    )
    return shared.decisions.decide(decision, ranking)


def _member(kind: type[Member], value: str, name: str) -> Member:
    if value not in list(kind):
        raise UsageError(f"{name}: expected one of {', '.join(kind)}, found {value[:40]!r}")
    return kind(value)
