"""Champion and challenger compared blind: one list of both for an article, and what came of it.

GET /comparison        the result so far, and articles to go on with
GET /comparison/KEY    the pictures that both models give for an article; nobody is told whose each is
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from orchestration.decisions.comparison import comparisons
from orchestration.pages.articles import copy_of
from orchestration.pages.rendering import address, page
from orchestration.pages.shown import compared, pair_of, pictures_of, said_of
from orchestration.pages.state import Shared
from schemas.decisions import Objection
from schemas.errors import NotFoundError

NAV = ("comparison.nav", "/comparison")
RECENT = 40  # articles
router = APIRouter()


@router.get("/comparison")
def results(request: Request, shared: Shared) -> Response:
    """Show what the choices say, and articles that can be compared."""
    problem = ""
    try:
        pair_of(shared)
    except NotFoundError as nothing:
        problem = str(nothing)
    return page(
        request, "comparisons.html.j2", found=comparisons(shared.decisions), articles=shared.store.recent(RECENT),
        problem=problem,
    )  # fmt: skip


@router.get("/comparison/{key}")
def compare(request: Request, shared: Shared, key: str, a: str = "", b: str = "") -> Response:
    """Show an article's pictures, of two models in turns."""
    article, pair = shared.store.article(key), pair_of(shared, a, b)
    here = address(request, a=pair[0].key, b=pair[1].key)
    ranking = compared(shared, article, pair, here)
    known = pictures_of(shared, ranking.dataset, (each.image for each in ranking.pictures))
    return page(
        request, "comparison.html.j2", key=key, article=article, then=here, copy_of=copy_of,
        pictures=[known[each.image] for each in ranking.pictures], said=said_of(shared, article.texts, is_blind=True),
        reasons=list(Objection),
    )  # fmt: skip
