"""`evaluate-search`: its numbers against a slow calculation, and what its baselines may not see."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
from small_indexes import given_documents, made_index

from newsroom.archive.index import Index, open_index
from newsroom.search.evaluate import BM25, FUSION, SEARCH, evaluate_search
from newsroom.search.queries import Query, RawDocument
from newsroom.search.search import RankBy, search
from schemas.documents import Document, Link, Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import NotFoundError, UsageError
from training.config import TrainConfig
from training.data.loading import read_for_model
from training.metrics.intervals import Score
from training.towers.inputs import text_input
from training.towers.vectors import LinearSettings, SentenceSettings

ROLES = ("headline", "lead", "caption", "body")
COUNT = 60
WORLD = lakes.World(sentences=(4, 4), images=(1, 1))


def vector_of(text: str) -> np.ndarray:
    """Return a sum of one vector a word: texts that share words are alike."""
    return sum(np.random.default_rng(list(word.encode())).normal(size=12) for word in text.lower().split())


reader = partial(given_documents, vector_of=vector_of)


@pytest.fixture(scope="module")
def articles() -> Any:
    """Articles of four texts and one picture each, in two languages, every text linked."""
    made = lakes.with_roles(lakes.make_documents(Split.TEST, COUNT, WORLD), ROLES)
    documents = tuple(
        replace(
            each,
            language="de" if number % 3 else "fr",
            links=tuple(Link(sentence, 0) for sentence in range(4)),
            sentences=tuple(replace(s, text=f"{s.text} {s.role}{number}") for s in each.sentences),
        )
        for number, each in enumerate(made.documents)
    )
    return replace(made, documents=documents)


@pytest.fixture(scope="module")
def lake(articles: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Of every second picture its archive says what the article's headline says, of the others nothing."""
    root = tmp_path_factory.mktemp("evaluating") / "lake"
    return lakes.write_lake(root, {Split.TEST: articles}, world=WORLD, said=titles_of(articles.documents[1::2]))


def titles_of(documents: Sequence[Document]) -> dict[str, dict[str, object]]:
    return {each.images[0].hash: {"metadata": {"title": each.sentences[0].text, "keywords": []}} for each in documents}


def index_of(lake: Lake) -> Index:
    model = lakes.untrained(TrainConfig(dimensions=16, text=SentenceSettings(), image=LinearSettings()), lake)
    return open_index(made_index(model, lake).folder.uri)


@pytest.fixture(scope="module")
def index(lake: Lake) -> Index:
    return index_of(lake)


def by_hand(index: Index, articles: Any) -> dict[tuple[str, str], list[int]]:
    """The rank of each document's own picture, by role (with language, too), for the model."""
    found: dict[tuple[str, str], list[int]] = {}
    images = index.vectors.rows[np.array(index.records.rows_of([each.images[0].hash for each in articles.documents]))]
    for number, each in enumerate(articles.documents):
        texts = {str(s.role): s.text for s in each.sentences}
        texts["all"] = " ".join(texts.values())
        for role, text in texts.items():
            given = index.model.read(reader([RawDocument(((role if role != "all" else "body", text),))]))
            scores = images @ index.model.encode_sentences(text_input(given))[0]
            rank = 1 + int((np.round(scores, 9) > np.round(scores[number], 9)).sum())
            for language in ("", each.language):
                found.setdefault((role, language), []).append(rank)
    return found


@pytest.fixture(scope="module")
def found(lake: Lake, index: Index) -> list[Score]:
    return evaluate_search(index, lake, "test", reader=reader)[0]


def test_the_models_scores_are_those_of_a_slow_calculation(found: list[Score], index: Index, articles: Any) -> None:
    scores = {(row.measure, row.group, row.metric): row for row in found}
    for (role, language), ranks in by_hand(index, articles).items():
        group = f"role={role}{f' language={language}' if language else ''}, whole pool of {COUNT}"
        mean = scores[SEARCH, group, "reciprocal_rank"]
        assert mean.value == pytest.approx(100 * np.mean([1 / rank for rank in ranks]), abs=1e-6)
        assert mean.n == len(ranks) and mean.low <= mean.value <= mean.high
        for cutoff in (5, 10, 50, 100):
            value = scores[SEARCH, group, f"recall_at_{cutoff}"].value
            assert value == pytest.approx(100 * np.mean([rank <= cutoff for rank in ranks]), abs=1e-6)
    assert {row.measure for row in found} == {SEARCH, BM25, FUSION}


def test_baselines_see_what_is_said_and_never_the_articles_captions(found: list[Score], index: Index) -> None:
    values = {(row.measure, row.group.split(",")[0], row.metric): row.value for row in found}
    assert values[BM25, "role=headline", "recall_at_5"] == pytest.approx(50, abs=12)  # every second has a title
    assert values[BM25, "role=headline", "reciprocal_rank"] > 48  # type: ignore[operator]
    # A caption's own word is in `shown_with` alone: by words it finds its picture no better than any other picture.
    assert values[BM25, "role=caption", "recall_at_5"] < 40  # type: ignore[operator]
    assert index.records.words.rank("caption7", 5).rows.size == 1


def test_without_anything_said_the_baselines_say_so(articles: Any, tmp_path: Path) -> None:
    lake = lakes.write_lake(tmp_path / "lake", {Split.TEST: articles}, world=WORLD)
    found, _ = evaluate_search(index_of(lake), lake, "test", reader=reader)
    absent = {row.measure: row.note for row in found if row.metric == "absent"}
    assert set(absent) == {BM25, FUSION} and all("has a title or a caption" in note for note in absent.values())


def test_what_cannot_be_evaluated_is_said(articles: Any, lake: Lake, index: Index, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no split 'val'"):
        evaluate_search(index, lake, "val", reader=reader)
    other = lakes.write_lake(tmp_path / "lake", {Split.TEST: lakes.without_links(articles)}, world=WORLD)
    with pytest.raises(UsageError, match="known links, found none"):
        evaluate_search(index_of(other), other, "test", reader=reader)


def test_what_finds_validation_texts_best_ranks_by_default(articles: Any, tmp_path: Path) -> None:
    articles = replace(articles, documents=tuple(replace(each, split=Split.VAL) for each in articles.documents))
    lake = lakes.write_lake(tmp_path / "lake", {Split.VAL: articles}, world=WORLD, said=titles_of(articles.documents))
    index, hand = index_of(lake), list[float]()
    ranks, card = index.confidence.reciprocal_ranks, index.model.card
    read = read_for_model(card.config.reading, card.data, *read_manifest(lake, "synthetic"), Split.VAL)
    for document, embedded in enumerate(index.model.embed(read)):
        own = index.records.rows_named([read.image_hashes[read.image_rows[read.images.rows(document)][0]]])[0]
        for text in embedded.texts:
            scores = index.vectors.rows.parts[0] @ text
            hand.append(1 / (1 + int((scores > scores[own]).sum())))
    assert ranks["visual"] == pytest.approx(np.mean(hand), abs=1e-4) and len(hand) == index.confidence.queries
    assert ranks["lexical"] == pytest.approx(
        1 / 4, abs=0.01
    )  # one text of each article shares its words with the title
    assert ranks["fused"] > ranks["lexical"] > ranks["visual"] and index.manifest.rank_by == "fused"
    query = Query(texts={"headline": articles.documents[7].sentences[0].text})
    found = search(index, query, reader=reader)
    assert found.rank_by == "fused" and found.images[0].picture.metadata.title == query.texts["headline"]
    assert found.images[0].probability is None
    assert search(index, query, rank_by=RankBy.VISUAL, reader=reader).images[0].probability
    assert search(index, Query(like=(found.images[0].picture.image,))).rank_by == "visual"
