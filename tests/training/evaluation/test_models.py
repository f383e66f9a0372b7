"""A model evaluated shard by shard scores as one that sees the whole split, and holds a bounded pool."""

import gc
import tracemalloc
from pathlib import Path

import lakes
import numpy as np
import pytest

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.parts import sampled, split_parts
from training.config import LoopConfig, Select, TrainConfig
from training.evaluation import models
from training.evaluation.evaluate import LEFT_OUT, NOT_SAMPLED, EvaluateConfig, evaluate_embedded
from training.evaluation.judge import judge_model
from training.evaluation.models import evaluate_model
from training.metrics.retrieval import linked_pool
from training.model import LinkModel
from training.shards import embed_split
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
