"""Decoys: an estimate of the false links, against the true links that it does not read."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.overrides import override
from training.data.documents import DocumentSet
from training.data.ragged import Ragged
from training.evaluation.decoys import Decoys, best_pairs, broken_pairs, count_decoys
from training.linking.links import Linker, LinkOptions
from training.metrics.calibration import Calibration
from training.metrics.curves import PrecisionPoint
from training.model import EmbeddedDocument, LinkModel
from training.promotions.loaded import LoadedModel
from training.recipes import recipe
from training.shards import embed_split
from training.workflows.link import compare_links, run_link_version

CONFIG = override(recipe("closed-form"), ["dimensions=8", "training.select=last"])
Shape = tuple[int, int, int]  # sentences, images, true links: of the first of both
SHAPES: dict[str, Sequence[Shape]] = {
    "one sentence": [(1, 5, 1)],
    "fewer sentences": [(2, 6, 2)],
    "two of both": [(2, 2, 2)],
    "five of both": [(5, 5, 5)],
    "ten of both": [(10, 10, 10)],
    "more sentences": [(10, 5, 5)],
    "half of them linked": [(6, 6, 3)],
    "single pairs among others": [(1, 1, 1), (5, 5, 5), (2, 6, 2)],
}


def drawn(
    shapes: Sequence[Shape], noise: float, count: int, seed: int, motifs: int = 0
) -> tuple[DocumentSet, list[EmbeddedDocument]]:
    """Documents of one shape after the other; what is linked are noisy views of one direction.

    With motifs, a document's directions are near some of them, each once in a document.
    """
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(motifs, 12))
    chosen = [shapes[number % len(shapes)] for number in range(count)]
    embedded = []
    for n, m, links in chosen:
        texts, images = rng.normal(size=(n, 12)), rng.normal(size=(m, 12))
        if motifs:
            texts = centres[rng.permutation(motifs)[:n]] + 0.1 * texts
        images[:links] = texts[:links] + noise * rng.normal(size=(links, 12))
        both = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (texts, images)]
        embedded.append(EmbeddedDocument(*(rows.astype(np.float32) for rows in both)))
    sentences, places = Ragged.of([n for n, _, _ in chosen]), Ragged.of([m for _, m, _ in chosen])
    documents = DocumentSet(
        ids=tuple(map(str, range(count))),
        texts=tuple(map(str, range(sentences.total))),
        sentences=sentences,
        sentence_numbers=sentences.numbers,
        sentence_vectors=None,
        images=places,
        image_rows=np.arange(places.total),
        image_hashes=tuple(map(str, range(places.total))),
        image_bank=np.zeros((places.total, 0), np.float32),
    )
    return documents, embedded


@pytest.mark.parametrize("noise", [0.3, 1.5])
@pytest.mark.parametrize("shape", SHAPES)
def test_without_common_motifs_the_estimate_is_at_most_the_share_of_false_links(shape: str, noise: float) -> None:
    documents, embedded = drawn(SHAPES[shape], noise, 300, 7)
    links = [(best_pairs(each), SHAPES[shape][number % len(SHAPES[shape])]) for number, each in enumerate(embedded)]
    true = sum(int(((rows == columns) & (rows < known)).sum()) for (rows, columns), (_, _, known) in links)
    total = sum(len(rows) for (rows, _), _ in links)
    share = 1 - true / total
    found = broken_pairs(documents, embedded)
    assert found.pairs > 0.95 * total
    error = np.sqrt(2 * max(share * (1 - share), 1 / total) / total)
    assert found.broken / found.pairs <= share + 2.5 * error
    if noise == 1.5:  # it says something
        assert found.broken / found.pairs > share / 4


@pytest.mark.parametrize("noise", [0.3, 1.5])
def test_motifs_that_come_back_make_the_estimate_too_high(noise: float) -> None:
    """As in a blog: a cat is in many posts, and once in each. So the number is no bound, and is not called one."""
    documents, embedded = drawn([(5, 5, 5)], noise, 300, 7, motifs=10)
    rows_and_columns = [best_pairs(each) for each in embedded]
    right = sum(int((rows == columns).sum()) for rows, columns in rows_and_columns)
    false = 1 - right / sum(len(rows) for rows, _ in rows_and_columns)
    found = broken_pairs(documents, embedded)
    if noise < 1:
        assert false < 0.02 and 0.05 < found.broken / found.pairs < 0.3
    estimate = found.false_percent
    assert estimate is not None and estimate.low < 100 * found.broken / found.pairs < estimate.high
    assert "estimate" in found.line() and "at least" not in found.line()


def test_documents_that_share_a_sentence_or_an_image_are_not_mixed() -> None:
    """A link to it could be right."""
    documents, embedded = drawn([(2, 2, 2)], 0.3, 20, 1)
    none = Decoys((0,) * 20, (0,) * 20)
    assert broken_pairs(replace(documents, texts=("same",) * 40), embedded) == none
    assert broken_pairs(replace(documents, image_rows=np.zeros(40, np.int64)), embedded) == none
    assert broken_pairs(documents, embedded).pairs == 40


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """As many sentences as images, all linked: what is drawn to another sentence is false."""
    world = lakes.World(topics=400, sentences=(4, 4), images=(4, 4), noise=1.0)
    made = lakes.splits(world, train=150)
    made[Split.TEST] = lakes.without_links(lakes.make_documents(Split.TEST, 60, world))
    path = str(tmp_path_factory.mktemp("lake"))
    return lakes.write_lake(path, made, world=replace(world, latent=8), is_named=True)


@pytest.fixture(scope="module")
def model(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> LinkModel:
    return LinkModel.load(lakes.learn(CONFIG, lake, tmp_path_factory.mktemp("run")))


@pytest.fixture(scope="module")
def counted(lake: Lake, model: LinkModel) -> dict[str, Decoys]:
    """The decoys of each split."""
    return {name: count_decoys(model, *read_manifest(lake, "synthetic"), [name]) for name in ("train", "test")}


def test_a_trained_model_with_steps_has_at_least_as_many_false_links(
    lake: Lake, model: LinkModel, counted: dict[str, Decoys]
) -> None:
    documents, embedded = embed_split(model, *read_manifest(lake, "synthetic"), Split.TRAIN)
    pairs = [set(zip(*(part.tolist() for part in best_pairs(each)), strict=True)) for each in embedded]
    total = sum(map(len, pairs))
    false = sum(len(own - set(map(tuple, links.tolist()))) for own, links in zip(pairs, documents.links, strict=True))
    found = counted["train"]
    assert model.steps is not None and embedded[0].names is not None
    assert 200 < found.pairs < total  # some documents have equal sentences
    assert 0 < found.broken / found.pairs <= false / total + 0.02


def test_all_splits_are_each_by_itself(lake: Lake, model: LinkModel, counted: dict[str, Decoys]) -> None:
    both = count_decoys(model, *read_manifest(lake, "synthetic"))
    assert Counter(zip(both.pairs_of, both.broken_of, strict=True)) == Counter(
        pair for each in counted.values() for pair in zip(each.pairs_of, each.broken_of, strict=True)
    )
    assert counted["train"].pairs > 2 * counted["test"].pairs > 0


@pytest.fixture(scope="module")
def precise(lake: Lake, model: LinkModel) -> LinkOptions:
    """Options that keep the surest links."""
    matrices = [each.similarities() for each in embed_split(model, *read_manifest(lake, "synthetic"), Split.TEST)[1]]
    high = float(np.quantile(np.concatenate([each.max(axis=1) for each in matrices]), 0.8))
    points = (PrecisionPoint(high, 0.9, 30),)
    return LinkOptions(
        precision=0.9,
        calibration=Calibration(
            dataset="d", split="val", documents=9, links=99, true_links=90, slopes=(0.0, 0.0, 0.0), intercept=0.0,
            points=points, sentences=(1, 99), images=(1, 99),
        ),
    )  # fmt: skip


def test_links_that_are_left_out_are_not_counted(
    lake: Lake, model: LinkModel, precise: LinkOptions, counted: dict[str, Decoys]
) -> None:
    linker = Linker(model=model, uri="x", options=precise)
    kept = count_decoys(model, *read_manifest(lake, "synthetic"), ["test"], choose=linker.pairs)
    assert 0 < kept.pairs < 0.4 * counted["test"].pairs and kept.broken < counted["test"].broken


def test_what_was_linked_is_estimated_by_its_splits_and_options(
    lake: Lake, model: LinkModel, precise: LinkOptions, tmp_path: Path
) -> None:
    loaded, output = LoadedModel(model=model, uri="models:/m/1"), str(tmp_path / "out")
    linked = run_link_version(
        loaded, lake, "synthetic", output, splits=["test"], options=precise, with_documents=True,
        say=print,
    )  # fmt: skip
    linker = Linker(model=model, uri="x", options=precise)
    assert compare_links(linked, linker, lake).decoys == count_decoys(
        model, *read_manifest(lake, "synthetic"), ["test"], choose=linker.pairs
    )


def test_a_model_that_knows_nothing_is_alarming(lake: Lake) -> None:
    found = count_decoys(lakes.untrained(CONFIG, lake), *read_manifest(lake, "synthetic"))
    assert 0.3 < found.broken / found.pairs < 0.75


def test_of_few_pairs_nothing_is_said() -> None:
    assert Decoys((50, 49), (10, 9)).false_percent is None and "too few" in Decoys((50, 49), (10, 9)).line()
    assert Decoys().false_percent is None
    assert (
        Decoys((50, 50), (10, 10)).line().startswith("about 20% of the links are false (an estimate from 100 swapped")
    )


def test_documents_are_the_units_of_the_interval() -> None:
    alike, spread = Decoys((10,) * 40, (2,) * 40).false_percent, Decoys((10,) * 40, (10, 0, 0, 0, 0) * 8).false_percent
    assert alike is not None and spread is not None and alike.mean == spread.mean == 20.0
    assert spread.high - spread.low > 1.5 * (alike.high - alike.low)


def test_a_document_that_cannot_be_linked_is_not_among_them(tmp_path: Path) -> None:
    """It is a failure of linking, after which the estimate ended the command."""
    made = lakes.make_documents(Split.TRAIN, 30, lakes.World())
    broken = {**made.sentence_vectors, "train-000": made.sentence_vectors["train-000"] * np.nan}
    lake = lakes.write_lake(tmp_path / "lake", {Split.TRAIN: replace(made, sentence_vectors=broken)})
    decoys = count_decoys(lakes.untrained(CONFIG, lake), *read_manifest(lake, "synthetic"))
    assert len(decoys.pairs_of) == 29 and decoys.pairs > 0
