"""A log of many decisions, and every page that an editor opens with it; for `benchmarks.pages`."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np

from newsroom.archive.index import open_index
from newsroom.decisions.database import open_database
from newsroom.decisions.log import DECISIONS, RANKINGS, DecisionLog
from newsroom.decisions.records import Action, Decision, Objection, Ranking, ShownPicture
from newsroom.pages.store import Article, Store
from schemas.versions import plain

AN_ARTICLE, OF_THE_FIRST = 10, 600  # decisions; one article has very many
SHOWN = 20  # pictures of a ranking
IMAGES = 5_000  # different ones
BLIND = 3  # every third article was compared blind
AT_ONCE = 200  # articles that are written together
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
Draw = Callable[[int], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Filled:
    """What is asked for: the articles with decisions, the first with most, and the data set version."""

    keys: Sequence[str]
    dataset: str
    count: int


def fill_log(store: str, indexes: Sequence[Path], count: int, draw: Draw) -> Filled:
    """Write decisions on pictures of an index into a database, and the articles that they are on.

    Args:
        store: address of the database, which is made.
        indexes: of two models over one version.
        count: of decisions.
        draw: gives the texts of an article.
    """
    first, second = (open_index(str(each)) for each in indexes)
    rows = np.linspace(0, first.manifest.images - 1, min(IMAGES, first.manifest.images)).astype(np.int64)
    images = first.records.take(rows, ("image", "title")).to_pylist()
    models, dataset = (first.manifest.model, second.manifest.model), first.manifest.dataset
    opened, rng = Store(store), np.random.default_rng(0)
    engine, keys = open_database(store), list[str]()
    RANKINGS.create(engine)
    DECISIONS.create(engine)
    sizes = [OF_THE_FIRST] + [AN_ARTICLE] * ((count - OF_THE_FIRST) // AN_ARTICLE)
    for start in range(0, len(sizes), AT_ONCE):
        rankings, decisions = [], []
        for number in range(start, min(start + AT_ONCE, len(sizes))):
            shown = [images[row] for row in rng.choice(len(images), SHOWN, replace=False)]
            texts = draw(1_000_000 + number % 500)  # 500 bodies, each under headlines of its own
            texts["headline"] += f" {number}"
            is_blind = number % BLIND == 1
            ranking = _ranking(texts, shown, models, dataset, is_blind)
            keys.append(opened.keep_article(Article(texts=texts)))
            rankings.append({"digest": ranking.digest, "article": ranking.article, "ranking": plain(ranking)})
            made = (_decided(ranking, each, number, rng) for each in range(sizes[number]))
            decisions += [{name: value for name, value in plain(each).items() if name != "number"} for each in made]
        with engine.begin() as connection:
            connection.execute(RANKINGS.insert(), rankings)
            connection.execute(DECISIONS.insert(), decisions)
    DecisionLog(engine).close()  # counts the blind ones, as of a log that an earlier release began
    opened.close()
    return Filled(keys, dataset, sum(sizes))


def _ranking(
    texts: dict[str, str], shown: Sequence[dict[str, str]], models: tuple[str, str], dataset: str, is_blind: bool
) -> Ranking:
    of = models if is_blind else ("", "")
    pictures = (
        ShownPicture(image=each["image"], title=each["title"][:80], score=-float(rank), model=of[rank % 2])
        for rank, each in enumerate(shown)
    )
    return Ranking(
        texts=texts, language="de", models=models if is_blind else models[:1], dataset=dataset, pictures=tuple(pictures)
    )


def _decided(ranking: Ranking, number: int, article: int, rng: np.random.Generator) -> Decision:
    picture = ranking.pictures[number % len(ranking.pictures)]
    action = (Action.CHOOSE, Action.SHORTLIST, Action.REJECT, Action.WITHDRAW)[int(rng.integers(4))]
    return Decision(
        action=action,
        image=picture.image,
        dataset=ranking.dataset,
        model="" if ranking.is_blind else ranking.models[0],
        reason=Objection.OTHER if action is Action.REJECT else None,
        ranking=ranking.digest,
        article=ranking.article,
        title=picture.title,
        at=(BEGUN + timedelta(minutes=10 * article, seconds=number)).isoformat(timespec="milliseconds"),
    )


def pages_asked(client: httpx.Client, filled: Filled, draw: Draw) -> Iterator[tuple[str, Callable[[int], None]]]:
    """Yield the name of each page and what asks for it, given a number that is another each time."""
    name, _, version = filled.dataset.partition("@")
    first, compared, home = filled.keys[0], filled.keys[1::BLIND], f"/datasets/{name}/{version}"

    def get(address: str | Callable[[int], str]) -> Callable[[int], None]:
        return lambda number: _check(client.get(address if isinstance(address, str) else address(number)))

    def new(number: int) -> None:
        _check(client.post("/articles", data=draw(2_000_000 + number)))

    yield "empty article", get("/")
    yield "article, new", new
    yield "article, seen before", get(f"/articles/{filled.keys[2]}?weak=1")
    yield f"article with {OF_THE_FIRST} decisions, seen before", get(f"/articles/{first}?weak=1")
    yield "article, a word left out", get(lambda number: f"/articles/{filled.keys[2]}?weak=1&leave=body.{number}")
    yield "article, a facet", get(lambda number: f"/articles/{filled.keys[2]}?weak=1&date={2000 + number}")
    yield "decision", _deciding(client, filled.keys[3])
    yield "decisions", get("/decisions")
    yield "decisions, in the middle", get(f"/decisions?before={filled.count // 2}")
    yield "comparisons", get("/comparison")
    yield "comparison, new", get(lambda number: f"/comparison/{compared[-1 - number]}")
    yield "comparison, seen before", get(f"/comparison/{compared[0]}")
    yield "placement", get(f"/placement/{first}")
    yield "documents", get(lambda number: f"/documents?split=train&start={number * 1000}")
    yield "links", get("/links")
    yield "data sets", get("/datasets")
    yield "data set", get(home)
    yield "samples", get(lambda number: f"{home}/samples?seed={number}")
    yield "failures", get(f"{home}/failures")
    yield "duplicates", get(f"{home}/duplicates")
    yield "leaks", get(f"{home}/leaks")
    yield "metrics", get("/metrics")


def _deciding(client: httpx.Client, key: str) -> Callable[[int], None]:
    """Return what decides on one picture after another of an article, in turns chosen and taken back."""
    page = client.get(f"/articles/{key}?weak=1&n=96").text
    sealed = re.search(r'name="shown" value="([^"]+)"', page)
    images = re.findall(r'value="choose:([0-9a-f]{64}):0"', page)
    assert sealed is not None

    def decide(number: int) -> None:
        given = {"shown": html.unescape(sealed[1]), "decide": f"choose:{images[number]}:0"}
        _check(client.post("/decisions", data=given, headers={"HX-Request": "true"}))

    return decide


def _check(answer: httpx.Response) -> None:
    if answer.status_code != 200:
        raise SystemExit(f"{answer.url}: {answer.status_code}\n{answer.text[-500:]}")
