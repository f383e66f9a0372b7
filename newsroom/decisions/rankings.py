"""Two models' pictures for an article as one list.

Champion and challenger are compared blind: which model gave which picture is in the ranking that the log keeps, and
nowhere that a person sees before the result; such a list has neither similarities nor probabilities. Both indexes are
of one data set version, so that a picture has the same content hash in both.

Team-draft interleaving (Radlinski, Kurup and Joachims 2008, "How does clickthrough data reflect retrieval quality?",
algorithm 2): the two rankings take turns in rounds, a coin decides which is first in each, and each gives its best
picture that is not there yet. An article is won by the ranking that gave more of the pictures chosen for it; articles
are independent, pictures of one article are not, so articles are counted (`training.metrics.preference`).
"""

from collections.abc import Sequence
from typing import TypeVar

from newsroom.archive.index import Index
from newsroom.decisions.records import Ranking, ShownPicture, article_digest
from newsroom.search.queries import Query
from newsroom.search.search import SearchResult
from schemas.errors import UsageError
from training.data.ragged import stream

COMPARED = 100  # pictures of each model's ranking that take part
SHOWN = 20
Item = TypeVar("Item")


def team_draft(first: Sequence[Item], second: Sequence[Item], *, top: int, seed: str) -> dict[Item, bool]:
    """Return at most `top` items of two rankings as one list: each in order, and whether the second gave it.

    Args:
        first: items, the best first, each once.
        second: the same, of the other ranking.
        top: how many are wanted; the list ends before where a ranking has nothing left to give.
        seed: the same seed and rankings give the same list; one an article.
    """
    coins, found = stream("interleaving", seed), dict[Item, bool]()
    while len(found) < top:
        lead = 2 * sum(found.values()) - len(found)  # of the second
        is_second = bool(coins.integers(2)) if lead == 0 else lead < 0
        item = next((each for each in (second if is_second else first) if each not in found), None)
        if item is None:
            break
        found[item] = is_second
    return found


def interleaved(query: Query, indexes: Sequence[Index], found: Sequence[SearchResult], *, address: str = "") -> Ranking:
    """Return two models' results for an article as one list; the same every time.

    Args:
        query: with the article's texts.
        indexes: of the champion and of the challenger.
        found: what each found, COMPARED pictures or fewer.
        address: of the page.

    Raises:
        UsageError: the indexes are not two models' of one data set version, or there is no text.
    """
    champion, challenger = (index.manifest for index in indexes)
    if champion.dataset != challenger.dataset or champion.model == challenger.model:
        raise UsageError(
            f"a comparison: expected indexes of two models over one data set version, found {champion.model} over "
            f"{champion.dataset} and {challenger.model} over {challenger.dataset}"
        )
    seed = article_digest(query.texts)
    if not seed:
        raise UsageError("a comparison needs the text of an article")
    titles = {each.picture.image: each.picture.title for result in found for each in result.images}
    first, second = ([each.picture.image for each in result.images] for result in found)
    models = (champion.model, challenger.model)
    drafted = team_draft(first, second, top=SHOWN, seed=seed)
    return Ranking(
        texts=query.texts,
        language=query.language,
        models=models,
        dataset=champion.dataset,
        query=address,
        pictures=tuple(
            ShownPicture(image=image, score=-float(rank), model=models[is_second], title=titles[image])
            for rank, (image, is_second) in enumerate(drafted.items(), start=1)
        ),
    )
