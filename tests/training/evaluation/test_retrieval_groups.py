"""Retrieval by language, role and source equals that of the group alone."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.config import TrainConfig
from training.data.documents import GivenDocument
from training.evaluation.judge import judge_model
from training.metrics.retrieval import Direction, linked_pool, retrieval_scores
from training.metrics.scores import Score
from training.model import LinkModel
from training.report.sections import sections
from training.settings import DataConfig
from training.shards import embed_split
from training.towers.multi_source import MultiSourceSettings, SubwordAttentionSettings

CONFIG = TrainConfig(
    dimensions=12, text=MultiSourceSettings(sources=("headline", "caption"), word_dimensions=8, dropout=0.0)
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    world = lakes.World(sentences=(2, 3), images=(1, 1))
    first = lakes.with_roles(lakes.make_documents(Split.TEST, 24, world), ("headline", "caption", "body"), "de")
    half = tuple(
        replace(document, language="fr", links=document.links) if number % 3 == 0 else document
        for number, document in enumerate(first.documents)
    )
    bare = replace(half[1], sentences=half[1].sentences[:1])  # without a caption
    made = replace(first, documents=(half[0], bare, *half[2:]))
    made.sentence_vectors[bare.id] = made.sentence_vectors[bare.id][:1]
    return lakes.write_lake(tmp_path_factory.mktemp("groups") / "lake", {Split.TEST: made})


def fused(lake: Lake, config: TrainConfig = CONFIG) -> LinkModel:
    words = [f"thing{number}" for number in range(40)] + [f"side{number}" for number in range(8)]
    return lakes.untrained(config, lake, words)


def by_group(rows: tuple[Score, ...]) -> dict[str, list[Score]]:
    """An image for a text, by the group its texts are of."""
    found: dict[str, list[Score]] = {}
    for row in rows:
        if row.measure == "retrieval" and "=" in row.group and Direction.TEXT_TO_IMAGE in row.group:
            found.setdefault(row.group.partition(",")[0], []).append(row)
    return found


def test_a_source_of_a_fused_model_is_read_alone(lake: Lake) -> None:
    model = fused(lake)
    groups = by_group(judge_model(model, lake, "synthetic").rows)
    assert groups.keys() == {"language=de", "language=fr", "source=headline", "source=caption"}
    queries = {name: scores[0].n for name, scores in groups.items()}
    assert (queries["source=headline"], queries["source=caption"]) == (24, 23)
    assert queries["language=de"] + queries["language=fr"] == 24
    documents = embed_split(model, *read_manifest(lake, "synthetic"), "test")[0]
    embedded = model.embed(documents)
    alone = []
    for place, row in enumerate(documents.sources or ()):
        given = GivenDocument(
            texts=[row[1]],
            sentence_vectors=None,
            roles=["caption"],
            language=(documents.languages or ())[place],
            image_vectors=documents.image_bank[documents.image_rows[place : place + 1]],
        )
        alone += model.embed(model.read([given]))
    kept = replace(documents, links=tuple(np.array([[0, 0]] if row[1] else []) for row in documents.sources or ()))
    expected = retrieval_scores(linked_pool(kept, alone, kept.links), directions=[Direction.TEXT_TO_IMAGE], samples=0)
    named = [replace(row, measure="retrieval", group=f"source=caption, {row.group}") for row in expected]
    assert groups["source=caption"] == named
    assert retrieval_scores(linked_pool(kept, embedded, kept.links), samples=0)[:4] != expected  # what is fused is read


def test_roles_that_are_not_fused_are_texts_of_their_own(lake: Lake) -> None:
    config = TrainConfig(
        dimensions=12,
        text=SubwordAttentionSettings(word_dimensions=8, dropout=0.0),
        data=DataConfig(roles=("headline", "caption")),
    )
    rows = judge_model(fused(lake, config), lake, "synthetic").rows
    assert by_group(rows).keys() == {"language=de", "language=fr", "role=headline"}
    table = sections(rows, dataset="news")["retrieval_groups"]
    names = [row.name for row in table.rows]
    place = next(place for place, name in enumerate(names) if name.startswith("role=headline, text to image"))
    assert names[place + 1] == "full model (Liu et al. 2020, table 1, this source alone: validation split, among 1,200)"


def test_a_relation_is_the_pairs_that_have_it(tmp_path: Path) -> None:
    world = lakes.World(sentences=(1, 1), images=(1, 1))
    made = lakes.with_relations(lakes.make_documents(Split.TEST, 40, world))
    found = lakes.write_lake(tmp_path / "lake", {Split.TEST: made})
    config = TrainConfig(dimensions=12, text=SubwordAttentionSettings(word_dimensions=8, dropout=0.0))
    groups = by_group(judge_model(fused(found, config), found, "synthetic").rows)
    true = Counter(
        name for document in made.documents for link in document.links or () for name, value in link.relations if value
    )
    assert len(true) == 2 and {name: scores[0].n for name, scores in groups.items()} == {
        f"relation={name}": count for name, count in true.items()
    }
    assert all(scores[0].group.endswith(f"whole pool of {scores[0].n}") for scores in groups.values())
