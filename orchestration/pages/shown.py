"""What an address of the pages shows, for a decision on one of its pictures; and what was decided before.

Nothing of a ranking comes from the browser: whoever has the article and the address has the ranking, and it is computed
again from the same index.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import QueryParams

from orchestration.decisions.rankings import COMPARED, interleaved, ranking_of
from orchestration.pages.archives import Choice
from orchestration.pages.asking import SearchParameters, find, language_of
from orchestration.pages.state import Pages
from orchestration.pages.store import Article
from schemas.decisions import Decision, Ranking, article_digest, standing
from schemas.errors import NotFoundError, UsageError
from training.retrieval.queries import Query
from training.retrieval.records import Picture
from training.retrieval.search import search

ARTICLES, COMPARISON = "articles", "comparison"
_PAGE = re.compile(rf"/(?:({ARTICLES}|{COMPARISON})/([0-9a-f]{{1,64}}))?")


def shown_at(shared: Pages, address: str) -> Ranking:
    """Return what an address of the article's or the comparison's page shows.

    Raises:
        UsageError: it is an address of another page.
        NotFoundError: the article or the index is not there any more.
    """
    parts = urlsplit(address)
    found, given = _PAGE.fullmatch(parts.path), QueryParams(parts.query)
    if found is None:
        raise UsageError("a decision: expected the address of an article's pictures")
    article = shared.store.article(found[2]) if found[2] else Article(texts={})
    if found[1] == COMPARISON:
        return compared(shared, article, pair_of(shared, given.get("a", ""), given.get("b", "")), address)
    asked = SearchParameters.of(given)
    choice = shared.archives.choice(asked.index)
    result = find(shared, choice, article, asked)
    images = [image for group in result.groups for image in (group.first, *group.folded)]
    index = shared.archives.opened(choice).index
    return ranking_of(result.query, index, images, where=choice.key, address=address)


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


def compared(shared: Pages, article: Article, pair: tuple[Choice, Choice], address: str) -> Ranking:
    """Return the one list of two models' pictures for an article; it says whose each picture is, and is kept so."""
    archives = [shared.archives.opened(choice) for choice in pair]
    queries = [
        Query(texts=article.texts, language=language_of(SearchParameters(), article, archive)) for archive in archives
    ]
    found = [
        search(archive.index, query, top=COMPARED, reader=archive.reader)
        for archive, query in zip(archives, queries, strict=True)
    ]
    return interleaved(queries[0], [archive.index for archive in archives], found, address=address)


def said_of(shared: Pages, texts: Mapping[str, str], *, models: tuple[str, ...] = ()) -> dict[str, Decision]:
    """Return what stands of the decisions on the pictures of an article, by content hash.

    Args:
        shared: has the log.
        texts: of the article.
        models: champion and challenger: of those alone that were made where they were compared.
    """
    article = article_digest(texts)
    if not article:
        return {}
    log = shared.decisions
    made = log.compared(article, models) if models else log.decisions(article=article)
    return {each.image: each for each in standing(made)}


def pictures_of(shared: Pages, dataset: str, images: Iterable[str]) -> dict[str, tuple[Choice, Picture]]:
    """Return what is known of pictures of a data set version, as far as an index has them, by content hash."""
    wanted = sorted(set(images))
    choice = next((each for each in shared.archives.choices if each.manifest.dataset == dataset), None)
    if choice is None or not wanted:
        return {}
    records = shared.archives.opened(choice).index.records
    rows = [row for row in records.rows_of(wanted) if row is not None]
    return {picture.image: (choice, picture) for picture in records.pictures(rows)}
