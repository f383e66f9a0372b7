"""Decisions on pictures: what the buttons below each picture do, the log, and two models compared blind by it.

POST /decisions         writes one on a picture of the page's ranking: `shown` and `decide`, as ACTION:HASH:AFTER, with
                        the number of the last decision that the page showed; of a rejection `reason` and `note`
POST /decisions/undo    takes the decision of `number` back, where it is the last one on its picture
GET  /decisions         the log, the newest first; `before=NUMBER` goes on, `q` searches
GET  /comparison        champion and challenger compared blind: the result so far, and articles to go on with
GET  /comparison/KEY    the pictures that both models give for an article; whose each is stays sealed

A page holds the ranking that it shows, sealed (`access.Seal`): a decision brings it back, so that nothing is searched
again, and what is logged is what was seen, whatever has been promoted since. Whose a picture is stays sealed in a blind
comparison. Texts are not in it: they are in the store, under the article's key.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool

from newsroom.archive.records import Picture
from newsroom.decisions.comparison import COMPARED, comparisons, interleaved
from newsroom.decisions.records import MAX_NOTE, Action, Decision, Objection, Ranking
from newsroom.decisions.store import Article, ConflictError
from newsroom.pages.access import Seal
from newsroom.pages.archives import Choice
from newsroom.pages.rendering import address, own_path, page
from newsroom.pages.search_jobs import language_of
from newsroom.pages.searches import Opened
from newsroom.pages.state import Field, Pages, Shared, Visitor
from newsroom.search.queries import Query
from newsroom.search.search import search
from schemas.configs import restore
from schemas.messages import NotFoundError, UsageError
from schemas.metadata import plain_text
from schemas.versions import plain

SHOWN_S = 7 * 24 * 3600  # how long a page can be decided on
AT_ONCE = 100  # decisions on a page
RECENT = 40  # articles
DECIDED = rf"^({'|'.join(Action)}):[0-9a-f]{{64}}:[0-9]+$"  # ACTION:HASH:NUMBER
Reason = Annotated[Objection | None, Form(), BeforeValidator(lambda value: value or None)]
router = APIRouter()


def sealed(shared: Pages, key: str, ranking: Ranking) -> str:
    """Return a ranking as its page holds it.

    Args:
        shared: has the secret.
        key: of the article; "": it has no text.
        ranking: that is shown.
    """
    return _seal(shared).sealed(zlib.compress(json.dumps(plain(ranking) | {"texts": key}).encode()))


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
    return key, restore(Ranking, values | {"texts": shared.store.article(key).texts if key else {}})


def standing_of(shared: Pages, article: str, models: tuple[str, ...] = ()) -> "Standing":
    """Return what stands for an article, by its digest; of two models, in their blind comparison alone."""
    log = shared.store
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
        before = self.before or replace(self.newest, action=Action.WITHDRAW, reason=None, note="")
        return replace(self.newest, action=before.action, reason=before.reason, note=before.note)


@router.post("/decisions")
def decide(
    request: Request, shared: Shared, who: Visitor, *, shown: Field = "", reason: Reason = None, note: Field = "",
    wanted: Annotated[str, Form(alias="decide", pattern=DECIDED)],
) -> Response:  # fmt: skip
    """Write a decision; answer with the picture's buttons as they are now, or lead back to the page.

    Where somebody decided meanwhile, nothing is written: the answer is what stands, with status 409. A rejection
    without a reason is answered with the question for it.
    """
    name, image, after = wanted.split(":")
    (key, ranking), action = opened(shared, shown), Action(name)
    is_part, then = "hx-request" in request.headers, address(request, ranking.query or "/")
    if action is Action.REJECT and reason is None:
        template = "rejected.html.j2" if is_part else "reject.html.j2"
        return page(request, template, image=image, after=after, shown=shown, reasons=Objection, then=then)
    decision = Decision(
        action=action,
        image=image,
        dataset=ranking.dataset,
        model="" if ranking.is_blind else ranking.models[0],
        reason=reason if action is Action.REJECT else None,
        note=(plain_text(note, MAX_NOTE) or "") if action is Action.REJECT else "",
        who=who,
    )
    made, status = None, 200
    try:
        made = shared.store.decide(decision, ranking, after=int(after) if key else None)
    except ConflictError:
        status = 409
    if is_part:
        standing = standing_of(shared, ranking.article, ranking.models) if key else Standing.of([made] if made else [])
        return page(
            request, "decided.html.j2", status=status, image=image, standing=standing, is_conflict=made is None,
            is_blind=ranking.is_blind, key=key, then=then,
        )  # fmt: skip
    if made is None:
        return page(request, "error.html.j2", status=status, code=status, line="", then=then)
    return RedirectResponse(f"{then}#decide-{image[:12]}", 303)


@router.post("/decisions/undo")
def undo(request: Request, shared: Shared, who: Visitor, number: Field = "", then: Field = "") -> Response:
    """Put back what stood before the last decision on an article, and lead to the page it is undone from."""
    log = shared.store
    found = log.latest(1, before=int(number) + 1) if number.isdecimal() else []
    if not found or found[0].number != int(number) or not found[0].ranking:
        raise UsageError(f"number={number[:20]!r}: expected the number of a decision on a picture")
    standing = Standing.of(log.decisions(article=found[0].article))
    if standing.undone is None or standing.newest != found[0]:
        raise ConflictError(f"number={number}: it is not the last decision on the article any more")
    (ranking,) = log.rankings([found[0].ranking]).values()
    log.decide(replace(standing.undone, who=who), ranking, after=found[0].number)
    return RedirectResponse(own_path(request, then), 303)


@router.get("/decisions")
def decisions(request: Request, shared: Shared, before: int | None = None, q: str = "") -> Response:
    """Show the log; of a blind comparison without the model that gave the picture."""
    found = shared.store.latest(AT_ONCE, before=before, containing=q.strip())
    subjects = shared.store.subjects(each.ranking for each in found if each.ranking)
    return page(request, "decisions.html.j2", decisions=found, subjects=subjects, q=q, is_more=len(found) == AT_ONCE)


@router.get("/comparison")
def results(request: Request, shared: Shared) -> Response:
    """Show what the choices say, and articles that can be compared."""
    articles = shared.store.recent(RECENT) if can_compare(shared) else None
    return page(request, "comparisons.html.j2", found=comparisons(shared.store), articles=articles)


@router.get("/comparison/{key}")
async def compared(request: Request, shared: Shared, key: str, a: str = "", b: str = "") -> Response:
    """Show an article's pictures, of two models in turns."""
    article, pair = await run_in_threadpool(shared.store.article, key), pair_of(shared, a, b)
    query = f"/comparison/{key}?{urlencode({'a': pair[0].key, 'b': pair[1].key})}"
    ranking, pictures = await shared.searches.run(request, compare, pair, article, query)
    standing = await run_in_threadpool(standing_of, shared, ranking.article, ranking.models)
    return page(
        request, "comparison.html.j2", article=article, choice=pair[0], pictures=pictures,
        standing=standing, shown=sealed(shared, key, ranking), is_blind=True,
    )  # fmt: skip


def compare(first: Opened, second: Opened, article: Article, address: str) -> tuple[Ranking, list[Picture]]:
    """Return the one list of two models' pictures for an article, and what is known of each.

    Raises:
        UsageError: they are not two models over one data set version, or a model cannot read the texts.
    """
    queries = [Query(texts=article.texts, language=language_of(each, article)) for each in (first, second)]
    indexes = [each.index for each in (first, second)]
    found = [
        search(index, query, top=COMPARED, queries=opened.queries, known=opened.read(query))
        for index, query, opened in zip(indexes, queries, (first, second), strict=True)
    ]
    ranking = interleaved(queries[0], indexes, found, address=address)
    known = {each.picture.image: each.picture for result in found for each in result.images}
    return ranking, [known[each.image] for each in ranking.pictures]


def can_compare(shared: Pages) -> bool:
    """Return whether there are two models to compare: without them no page leads here."""
    return _first_pair(shared.archives.choices) is not None


def pair_of(shared: Pages, champion: str = "", challenger: str = "") -> tuple[Choice, Choice]:
    """Return the indexes of two models over one data set version: those that are named, else the first that fit.

    Raises:
        NotFoundError: there are no such two.
    """
    if champion and challenger:
        return shared.archives.choice(champion), shared.archives.choice(challenger)
    if pair := _first_pair(shared.archives.choices):
        return pair
    raise NotFoundError("a comparison needs the indexes of two models over one data set version: `multilink index`")


def _first_pair(choices: Sequence[Choice]) -> tuple[Choice, Choice] | None:
    """Return the first two indexes of two models over one data set version, the champion's first.

    Of two that are no champion the order is that of their names, whenever they were made: what was compared once stays
    one comparison.
    """
    for first, second in combinations(choices, 2):
        if first.manifest.dataset == second.manifest.dataset and first.manifest.model != second.manifest.model:
            one, other = sorted((first, second), key=lambda each: (each.standing, each.key))
            return one, other
    return None
