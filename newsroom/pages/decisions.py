"""Decisions on pictures: what the buttons below each picture do, and the log of what was decided.

POST /decisions         writes one on a picture of the page's ranking: `shown` and `decide`, as ACTION:HASH:AFTER, with
                        the number of the last decision that the page showed; of a rejection `reason` and `note`
POST /decisions/undo    takes the decision of `number` back, where it is the last one on its picture
GET  /decisions         the log, the newest first; `before=NUMBER` goes on, `q` searches

A page holds the ranking that it shows, sealed (`access.Seal`): a decision brings it back, so that nothing is searched
again, and what is logged is what was seen, whatever has been promoted since. Whose a picture is stays sealed in a blind
comparison. Texts are not in it: they are in the store, under the article's key.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, TypeVar

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from newsroom.decisions.log import ConflictError
from newsroom.decisions.records import MAX_NOTE, Action, Decision, Objection, Ranking, ShownPicture
from newsroom.pages.access import Seal
from newsroom.pages.rendering import address, own_path, page
from newsroom.pages.state import Field, Pages, Shared, Visitor
from schemas.errors import UsageError
from schemas.metadata import plain_text
from schemas.versions import plain

SHOWN_S = 7 * 24 * 3600  # how long a page can be decided on
NAV = ("decisions.nav", "/decisions")
AT_ONCE = 100  # decisions on a page
REASONS = list(Objection)
Member = TypeVar("Member", bound=StrEnum)
router = APIRouter()


def sealed(shared: Pages, key: str, ranking: Ranking) -> str:
    """Return a ranking as its page holds it.

    Args:
        shared: has the secret.
        key: of the article; "": it has no text.
        ranking: that is shown.
    """
    values = plain(ranking) | {"texts": key}
    return _seal(shared).sealed(zlib.compress(json.dumps(values).encode()))


def opened(shared: Pages, token: str) -> tuple[str, Ranking]:
    """Return the key of the article and the ranking that a page held.

    Raises:
        UsageError: it is of no page of these, or of one that is too old.
        NotFoundError: the article is not there any more.
    """
    data = _seal(shared).opened(token)
    if data is None:
        raise UsageError("the page is out of date: reload it, and decide again")
    values = json.loads(zlib.decompress(data))
    key = values["texts"]
    pictures = tuple(ShownPicture(**each) for each in values["pictures"])
    names = {name: tuple(values[name]) for name in ("models", "indexes")}
    texts = shared.store.article(key).texts if key else {}
    return key, Ranking(**values | names | {"texts": texts, "pictures": pictures})


def standing_of(shared: Pages, article: str, models: tuple[str, ...] = ()) -> "Standing":
    """Return what stands for an article, by its digest; of two models, in their blind comparison alone."""
    log = shared.decisions
    return Standing.of(log.compared(article, models) if len(models) > 1 else log.decisions(article=article))


def _seal(shared: Pages) -> Seal:
    return Seal(shared.secret, "ranking", SHOWN_S)


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands of the decisions on an article's pictures.

    Attributes:
        last: content hash -> the last decision on the picture, which may have taken another back.
        newest: the last of all; None: there is none.
        before: the one on the same picture that it took the place of; None: there was none.
    """

    last: dict[str, Decision] = field(default_factory=dict)
    newest: Decision | None = None
    before: Decision | None = None

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> "Standing":
        """Return what stands of decisions in the order of the log."""
        last: dict[str, Decision] = {}
        newest = before = None
        for each in decisions:
            newest, before = each, last.pop(each.image, None)
            last[each.image] = each
        return cls(last, newest, before)

    def decided(self, action: Action) -> list[Decision]:
        """Return the decisions of an action that stand, in order."""
        return [each for each in self.last.values() if each.action == action]

    @property
    def undone(self) -> Decision | None:
        """Return the decision that undoes the newest one; None where there is none, or it was a blind one."""
        if self.newest is None or self.newest.is_blind:
            return None
        before = self.before
        return Decision(
            action=Action.WITHDRAW if before is None else before.action,
            image=self.newest.image,
            dataset=self.newest.dataset,
            model=self.newest.model,
            reason=None if before is None else before.reason,
            note="" if before is None else before.note,
        )


@router.post("/decisions")
def decide(
    request: Request, shared: Shared, who: Visitor, *, shown: Field = "", reason: Field = "", note: Field = "",
    wanted: Annotated[str, Form(alias="decide")] = "",
) -> Response:  # fmt: skip
    """Write a decision; answer with the picture's buttons as they are now, or lead back to the page.

    Where somebody decided meanwhile, nothing is written: the answer is what stands, with status 409. A rejection
    without a reason is answered with the question for it.
    """
    name, _, rest = wanted.partition(":")
    image, _, after = rest.partition(":")
    if not after.isdecimal():
        raise UsageError(f"decide={wanted[:100]!r}: expected ACTION:HASH:NUMBER")
    (key, ranking), action = opened(shared, shown), _member(Action, name, "decide")
    is_part, then = "hx-request" in request.headers, address(request, ranking.query or "/")
    if action is Action.REJECT and not reason:
        template = "rejected.html.j2" if is_part else "reject.html.j2"
        return page(request, template, image=image, after=after, shown=shown, reasons=REASONS, then=then)
    decision = Decision(
        action=action,
        image=image,
        dataset=ranking.dataset,
        model="" if ranking.is_blind else ranking.models[0],
        reason=_member(Objection, reason, "reason") if action is Action.REJECT else None,
        note=(plain_text(note, MAX_NOTE) or "") if action is Action.REJECT else "",
        who=who,
    )
    made, status = None, 200
    try:
        made = shared.decisions.decide(decision, ranking, after=int(after) if key else None)
    except ConflictError:
        status = 409
    if is_part:
        standing = standing_of(shared, ranking.article, ranking.models) if key else Standing.of([made] if made else [])
        choice_key = "".join(ranking.indexes[:1])
        return page(
            request, "decided.html.j2", status=status, image=image, standing=standing, is_conflict=made is None,
            is_blind=ranking.is_blind, key=key, choice_key=choice_key, then=then,
        )  # fmt: skip
    if made is None:
        return page(request, "error.html.j2", status=status, code=status, line="", then=then)
    return RedirectResponse(f"{then}#decide-{image[:12]}", 303)


@router.post("/decisions/undo")
def undo(request: Request, shared: Shared, who: Visitor, number: Field = "", then: Field = "") -> Response:
    """Put back what stood before the last decision on an article, and lead to the page it is undone from."""
    log = shared.decisions
    found = log.latest(1, before=int(number) + 1) if number.isdecimal() else []
    if not found or found[0].number != int(number) or not found[0].ranking:
        raise UsageError(f"number={number[:20]!r}: expected the number of a decision on a picture")
    standing = Standing.of(log.decisions(article=found[0].article))
    if standing.undone is None or standing.newest != found[0]:
        raise ConflictError(standing.newest)
    (ranking,) = log.rankings([found[0].ranking]).values()
    log.decide(replace(standing.undone, who=who), ranking, after=found[0].number)
    return RedirectResponse(own_path(request, then), 303)


@router.get("/decisions")
def decisions(request: Request, shared: Shared, before: int | None = None, q: str = "") -> Response:
    """Show the log; of a blind comparison without the model that gave the picture."""
    found = shared.decisions.latest(AT_ONCE, before=before, containing=q.strip())
    subjects = shared.decisions.subjects(each.ranking for each in found if each.ranking)
    return page(request, "decisions.html.j2", decisions=found, subjects=subjects, q=q, is_more=len(found) == AT_ONCE)


def _member(kind: type[Member], value: str, name: str) -> Member:
    if value not in list(kind):
        raise UsageError(f"{name}: expected one of {', '.join(kind)}, found {value[:40]!r}")
    return kind(value)
