"""Champion and challenger compared blind: one list of both for an article, and what came of it.

GET /comparison        the result so far, and articles to go on with
GET /comparison/KEY    the pictures that both models give for an article; whose each is stays sealed
"""

from contextlib import suppress
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from newsroom.decisions.comparison import comparisons
from newsroom.decisions.rankings import title_of
from newsroom.pages.archives import Choice
from newsroom.pages.articles import copy_of
from newsroom.pages.decisions import sealed, standing_of
from newsroom.pages.rendering import page
from newsroom.pages.search_jobs import compare
from newsroom.pages.state import Pages, Shared
from schemas.errors import NotFoundError

NAV = ("comparison.nav", "/comparison")
RECENT = 40  # articles
router = APIRouter()


@router.get("/comparison")
def results(request: Request, shared: Shared) -> Response:
    """Show what the choices say, and articles that can be compared."""
    articles = shared.store.recent(RECENT) if can_compare(shared) else None
    return page(request, "comparisons.html.j2", found=comparisons(shared.decisions), articles=articles)


@router.get("/comparison/{key}")
async def compared(request: Request, shared: Shared, key: str, a: str = "", b: str = "") -> Response:
    """Show an article's pictures, of two models in turns."""
    article, pair = await run_in_threadpool(shared.store.article, key), pair_of(shared, a, b)
    query = f"/comparison/{key}?{urlencode({'a': pair[0].key, 'b': pair[1].key})}"
    ranking, pictures = await shared.searches.run(request, compare, pair, article, query)
    standing = await run_in_threadpool(standing_of, shared, ranking.article, ranking.models)
    return page(
        request, "comparison.html.j2", article=article, choice=pair[0], pictures=pictures, copy_of=copy_of,
        title_of=title_of, standing=standing, shown=sealed(shared, key, ranking), is_blind=True,
    )  # fmt: skip


def can_compare(shared: Pages) -> bool:
    """Return whether there are two models to compare: without them no page leads here."""
    with suppress(NotFoundError):
        return bool(pair_of(shared))
    return False


def pair_of(shared: Pages, champion: str = "", challenger: str = "") -> tuple[Choice, Choice]:
    """Return the indexes of two models over one data set version: those that are named, else the first that fit.

    The champion is first. Of two that are no champion the order is that of their names, whenever they were made: what
    was compared once stays one comparison.

    Raises:
        NotFoundError: there are no such two.
    """
    choices = shared.archives.choices
    if champion and challenger:
        return shared.archives.choice(champion), shared.archives.choice(challenger)
    for number, first in enumerate(choices):
        for second in choices[number + 1 :]:
            if first.manifest.dataset == second.manifest.dataset and first.manifest.model != second.manifest.model:
                one, other = sorted((first, second), key=lambda each: (each.standing, each.key))
                return one, other
    raise NotFoundError("a comparison needs the indexes of two models over one data set version: `multilink index`")
