"""A model evaluated shard by shard scores as one that sees the whole split, and by groups as on each group alone."""

import gc
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.parts import sampled, split_parts
from training.config import LoopConfig, Select, TrainConfig
from training.data.documents import GivenDocument
from training.evaluation import models
from training.evaluation.evaluate import LEFT_OUT, NOT_SAMPLED, EvaluateConfig, evaluate_embedded
from training.evaluation.judge import judge_model
from training.evaluation.models import evaluate_model
from training.metrics.intervals import Score
from training.metrics.retrieval import Direction, linked_pool, retrieval_scores
from training.model import LinkModel
from training.parts import DataConfig
from training.report.sections import sections
from training.shards import embed_split
from training.towers.multi_source import MultiSourceSettings, SubwordAttentionSettings
from training.towers.recurrence import GruSettings
from training.towers.vectors import LinearSettings

SHARDS, DOCUMENTS = 5, 40
CONFIG = TrainConfig(
    dimensions=16,
    text=GruSettings(word_dimensions=8, min_word_count=1),
    image=LinearSettings(),
    training=LoopConfig(epochs=1, select=Select.LAST),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lakes.write_lake(
        tmp_path_factory.mktemp("models") / "lake", lakes.splits(train=DOCUMENTS, test=DOCUMENTS), shards=SHARDS
    )


@pytest.fixture(scope="module")
def model(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> LinkModel:
    return LinkModel.load(lakes.learn(CONFIG, lake, tmp_path_factory.mktemp("run")))


def first_shards(lake: Lake, count: int) -> int:
    """Return how many documents the first shards of the test split have."""
    return sum(shard.documents.rows for shard in split_parts(read_manifest(lake, "synthetic")[0], Split.TEST)[:count])


def test_scores_are_those_of_the_whole_split(lake: Lake, model: LinkModel) -> None:
    documents, vectors = embed_split(model, *read_manifest(lake, "synthetic"), Split.TEST)
    whole = evaluate_embedded(documents, vectors, where="synthetic, split test", with_pairs=True)
    found = evaluate_model(model, lake, "synthetic", with_pairs=True)
    assert len(found.ids) == DOCUMENTS
    assert tuple(found.ids) == whole.ids
    for one, other in ((found.scores, whole.scores), (found.chance, whole.chance), (found.pairs, whole.pairs)):
        assert np.array_equal(one.documents, other.documents) and np.array_equal(one.table, other.table)
        assert (one.left_out, one.candidates, one.chance) == (other.left_out, other.candidates, other.chance)
    assert evaluate_model(model, lake, "synthetic").pairs is None


def test_a_pool_of_retrieval_is_of_the_first_shards(
    lake: Lake, model: LinkModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = first_shards(lake, 2)
    monkeypatch.setattr(models, "POOL_DOCUMENTS", kept)
    found = evaluate_model(model, lake, "synthetic", with_pairs=True)
    manifest, folder = read_manifest(lake, "synthetic")
    documents, vectors = embed_split(model, sampled(manifest, kept), folder, Split.TEST)
    pool = linked_pool(documents, vectors, documents.links or ())
    assert found.pairs is not None and found.pairs.candidates == len(pool.images)
    assert set(found.by_document(found.pairs)) <= set(documents.ids)
    assert len(found.ids) == DOCUMENTS and len(found.scores) > len(found.pairs)


def test_a_sample_is_the_first_shards_of_every_split_and_never_empty(lake: Lake) -> None:
    manifest, _ = read_manifest(lake, "synthetic")
    assert sampled(manifest, 0) is manifest and sampled(manifest, DOCUMENTS) is manifest
    cut = sampled(manifest, first_shards(lake, 2) + 1)
    assert split_parts(cut, Split.TEST) == split_parts(manifest, Split.TEST)[:2]
    for split in (Split.TRAIN, Split.TEST):
        assert split_parts(sampled(manifest, 1), split) == split_parts(manifest, split)[:1]
    others = [entry for entry in manifest.files if not entry.path.startswith(("documents/", "images/"))]
    assert set(others) <= set(cut.files)


def test_a_report_says_how_many_documents_were_not_evaluated(lake: Lake, model: LinkModel) -> None:
    kept = first_shards(lake, 3)
    judged = judge_model(model, lake, "synthetic", config=EvaluateConfig(max_documents=kept))
    counts = {row.group: row.n for row in judged.rows if row.metric == LEFT_OUT}
    assert counts[NOT_SAMPLED] == DOCUMENTS - kept and len(judged.evaluation.ids) == kept
    found = evaluate_model(model, lake, "synthetic", max_documents=kept)
    assert found.document_auc == judged.evaluation.document_auc and len(found.ids) == kept
    assert NOT_SAMPLED not in {row.group for row in judge_model(model, lake, "synthetic").rows}


def test_an_evaluation_holds_arrays_of_scores_and_no_document(model: LinkModel, tmp_path: Path) -> None:
    """Tuples of Python's took 471 bytes a document."""

    def peak(documents: int) -> int:
        lake = lakes.write_lake(tmp_path / str(documents), lakes.splits(test=documents), shards=documents // 30)
        tracemalloc.start()
        found = evaluate_model(model, lake, "synthetic")
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(found.ids) == documents and len(found.scores) > documents / 2
        return held

    peak(60)  # what is imported and made once
    less, more = peak(180), peak(900)
    assert more - less < 720 * 160  # the manifest is a part of it


FUSED = TrainConfig(
    dimensions=12, text=MultiSourceSettings(sources=("headline", "caption"), word_dimensions=8, dropout=0.0)
)


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> Lake:
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


def fused(lake: Lake, config: TrainConfig = FUSED) -> LinkModel:
    words = [f"thing{number}" for number in range(40)] + [f"side{number}" for number in range(8)]
    return lakes.untrained(config, lake, words)


def by_group(rows: tuple[Score, ...]) -> dict[str, list[Score]]:
    """An image for a text, by the group its texts are of."""
    found: dict[str, list[Score]] = {}
    for row in rows:
        if row.measure == "retrieval" and "=" in row.group and Direction.TEXT_TO_IMAGE in row.group:
            found.setdefault(row.group.partition(",")[0], []).append(row)
    return found


def test_a_source_of_a_fused_model_is_read_alone(news: Lake) -> None:
    model = fused(news)
    groups = by_group(judge_model(model, news, "synthetic").rows)
    assert groups.keys() == {"language=de", "language=fr", "source=headline", "source=caption"}
    queries = {name: scores[0].n for name, scores in groups.items()}
    assert (queries["source=headline"], queries["source=caption"]) == (24, 23)
    assert queries["language=de"] + queries["language=fr"] == 24
    documents = embed_split(model, *read_manifest(news, "synthetic"), "test")[0]
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


def test_roles_that_are_not_fused_are_texts_of_their_own(news: Lake) -> None:
    config = TrainConfig(
        dimensions=12,
        text=SubwordAttentionSettings(word_dimensions=8, dropout=0.0),
        data=DataConfig(roles=("headline", "caption")),
    )
    rows = judge_model(fused(news, config), news, "synthetic").rows
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
