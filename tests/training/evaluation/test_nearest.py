"""The nearest sentence in the layout, beside calculations by hand, and the ablation that mixes it with a model."""

import re
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import lakes
import numpy as np
import pytest
import torch
from set_similarity import set_similarity

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import UsageError
from training.config import LoopConfig, TrainConfig, objective
from training.data.documents import UNKNOWN_PLACE, DocumentSet
from training.data.lake import Columns, read_split
from training.data.ragged import Ragged
from training.data.split import read_index, validation_bounds
from training.evaluation.evaluate import STANDARD_CONFIG, means_of
from training.evaluation.judge import judge_model
from training.evaluation.models import evaluate_model
from training.evaluation.position import WEIGHTS, Side, evaluate_nearest, mixed, nearness
from training.model import EmbeddedDocument, LinkModel
from training.report.sections import score_table, sections
from training.similarity.similarity import Combine
from training.towers.vectors import LinearSettings, SentenceSettings

OFFSETS = {Side.AFTER: 0.0, Side.EITHER: 0.5, Side.BEFORE: 1.0}


def auc_by_counting(distances: list[list[float]], links: set[tuple[int, int]]) -> float:
    """Return AUC in percent from all pairs of a linked and an unlinked pair, a tie counting half."""
    cells = list(product(range(len(distances)), range(len(distances[0]))))
    wins = [
        (distances[i][j] < distances[k][m]) + (distances[i][j] == distances[k][m]) / 2
        for (i, j), (k, m) in product(cells, cells)
        if (i, j) in links and (k, m) not in links
    ]
    return 100 * sum(wins) / len(wins)


def layout(
    places: list[int], sentences: int, links: list[tuple[int, int]] | None, numbers: object = None
) -> DocumentSet:
    """Return one document whose images stand at some places."""
    return DocumentSet(
        ids=("d",),
        texts=("text",) * sentences,
        sentences=Ragged.of([sentences]),
        sentence_numbers=np.arange(sentences) if numbers is None else np.array(numbers),
        sentence_vectors=None,
        images=Ragged.of([len(places)]),
        image_rows=np.arange(len(places)),
        image_hashes=tuple(map(str, places)),
        image_bank=np.zeros((len(places), 0), np.float16),
        links=(None if links is None else np.array(links, np.int64).reshape(-1, 2),),
        after_sentence=np.array(places),
    )


def test_nearness_orders_as_minus_the_distance() -> None:
    numbers, places = np.arange(7), np.random.default_rng(0).integers(0, 8, 5)
    for side, offset in OFFSETS.items():
        found = nearness(numbers, places, side)
        expected = [[1 / (1 + abs(i + offset - p)) for p in places] for i in range(7)]
        assert np.allclose(found, expected)
    assert not nearness(numbers, np.array([UNKNOWN_PLACE]), Side.AFTER).any()


def test_scores_are_those_of_the_distances_counted_by_hand() -> None:
    links = [(1, 0), (0, 1), (4, 2)]
    found, note = evaluate_nearest(layout([1, 3, 5], 6, links), None, where="here")
    distances = [[abs(i + 0.5 - place) for place in (1, 3, 5)] for i in range(6)]
    assert note.startswith(Side.EITHER.words) and "no validation link" in note
    assert found.mean["auc"].value == pytest.approx(auc_by_counting(distances, set(links)))
    # At distance 0.5 are sentences 0, 1 of the first image, 2, 3 of the second, 4, 5 of the third: two of six are true.
    assert found.mean["precision_at_1"].value == pytest.approx(100 * 2 / 6)
    assert found.mean["precision_at_5"].value == pytest.approx(100 * 2 / 6)


@pytest.mark.parametrize("side", [Side.AFTER, Side.BEFORE])
def test_validation_links_say_on_which_side_captions_stand(side: Side) -> None:
    step = 1 if side is Side.BEFORE else 0
    validation = layout([step + place for place in (0, 2, 3)], 5, [(0, 0), (2, 1), (3, 2)])
    test = layout([step, step + 1], 3, [(0, 0), (1, 1)])
    found, note = evaluate_nearest(test, validation, where="here")
    assert note.startswith(side.words)
    assert (found.mean["auc"].value, found.mean["precision_at_1"].value) == (100, 100)
    assert "by validation" in note and "every true link leads to it: an upper bound by construction" in note
    half = replace(test, links=(np.array([[0, 0], [2, 1]]),))
    assert evaluate_nearest(half, validation, where="here")[1].endswith("; 50.0% of the true links lead to it")


def test_rows_that_are_read_keep_their_place_among_all_sentences() -> None:
    read = layout([4], 2, [(1, 0)], numbers=[0, 4])  # a view leaves sentences 1, 2 and 3 out
    found, _ = evaluate_nearest(read, layout([0, 2], 3, [(0, 0), (2, 1)]), where="here")
    assert found.matrices[0][:, 0] == pytest.approx([1 / 5, 1])
    assert found.mean["auc"].value == 100


def test_what_is_not_known_is_said() -> None:
    for documents in (layout([UNKNOWN_PLACE] * 2, 3, [(0, 0)]), replace(layout([0], 2, [(0, 0)]), after_sentence=None)):
        with pytest.raises(UsageError, match=r"here has no positions of images .*after_sentence"):
            evaluate_nearest(documents, None, where="here")
    known = layout([0, 2], 3, [(0, 0), (1, 1)])
    for validation in (layout([UNKNOWN_PLACE], 2, [(0, 0)]), layout([0, 2], 3, None)):
        assert evaluate_nearest(known, validation, where="here")[1].startswith(Side.EITHER.words)
    with pytest.raises(UsageError, match="fuses a document's texts"):
        evaluate_nearest(replace(known, sources=(("a",),) * 3), None, where="here")


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("side", list(Side))
def test_mixed_vectors_give_the_mixed_score_of_any_two_documents(weight: float, side: Side) -> None:
    rng = np.random.default_rng(1)
    one, two = layout([0, UNKNOWN_PLACE, 3], 4, [(0, 0)]), layout([2, 6], 6, [(0, 0)])
    both = replace(
        one,
        ids=("a", "b"),
        texts=one.texts + two.texts,
        sentences=Ragged.of([4, 6]),
        sentence_numbers=np.concatenate([one.sentence_numbers, two.sentence_numbers]),
        images=Ragged.of([3, 2]),
        image_rows=np.arange(5),
        after_sentence=np.concatenate([one.after_sentence, two.after_sentence]),  # type: ignore[list-item]
    )
    vectors = [
        EmbeddedDocument(rng.normal(size=(n, 8)).astype(np.float32), rng.normal(size=(m, 8)).astype(np.float32))
        for n, m in ((4, 3), (6, 2))
    ]
    found = mixed(both, vectors, weight, side, where="here")
    for texts, images in product(range(2), range(2)):
        places = ([0, None, 3], [2, 6])[images]
        near = [
            [0 if p is None else 1 / (1 + abs(i + OFFSETS[side] - p)) for p in places] for i in range((4, 6)[texts])
        ]
        expected = (1 - weight) * vectors[texts].texts @ vectors[images].images.T + weight * np.array(near)
        assert np.allclose(found[texts].texts @ found[images].images.T, expected, atol=1e-5)


CONFIG = TrainConfig(
    dimensions=8,
    text=SentenceSettings(dropout=0.0),
    image=LinearSettings(dropout=0.0),
    objective=objective("cross", similarity="dc", margin=0.2),
    training=LoopConfig(negative_documents=4),
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = lakes.splits(train=6, val=12, test=12)
    return lakes.write_lake(tmp_path / "lake", {split: lakes.with_places(each) for split, each in made.items()})


@pytest.fixture
def model(lake: Lake) -> LinkModel:
    return lakes.untrained(CONFIG, lake, seed=3)


def test_the_weight_is_that_of_the_smallest_loss_without_links(lake: Lake, model: LinkModel) -> None:
    judged = judge_model(model, lake, "synthetic", Split.TEST, config=replace(STANDARD_CONFIG, position=True))
    rows = [row for row in judged.rows if row.measure == "position"]
    losses = {row.group: row.value for row in rows if row.metric == "validation_loss"}
    assert [name.partition(",")[0] for name in losses] == [f"w={weight:g}" for weight in WEIGHTS]

    expected = {(weight, side): loss_by_hand(lake, model, weight, side) for weight in WEIGHTS for side in Side}
    for weight, loss in zip(WEIGHTS, losses.values(), strict=True):
        assert loss == pytest.approx(min(expected[weight, side] for side in Side), abs=1e-5)
    weight, side = min(expected, key=lambda mix: (round(expected[mix], 5), mix[0]))
    chosen = means_of(judged.rows, "position")
    assert chosen["auc"].note.startswith(f"w={weight:g}, ")
    stated = re.search(r"by validation loss: ([0-9.]+)", chosen["auc"].note)
    assert stated is not None and float(stated[1]) == pytest.approx(expected[weight, side], abs=1e-4)

    alone = evaluate_model(model, lake, "synthetic", Split.TEST).mean["auc"]
    assert next(row for row in rows if row.group.startswith("w=0,") and row.metric == "auc").value == alone.value
    documents = read_split(*read_manifest(lake, "synthetic"), Split.TEST, COLUMNS)
    vectors = model.embed(documents)
    by_hand = []
    for number, document in enumerate(vectors):
        links = documents.links[number] if documents.links else None
        near = distances(documents, number, side)
        matrix = (1 - weight) * document.similarities() + weight / (1 + near) * np.isfinite(near)
        if links is not None and 0 < len(links) < matrix.size:
            by_hand.append(auc_by_counting((-matrix).tolist(), set(map(tuple, links.tolist()))))
    assert chosen["auc"].value == pytest.approx(np.mean(by_hand), abs=0.3)  # float32 may part a tie

    table = score_table(judged.rows, "model")
    assert table is not None and [row.name for row in table.rows[:2]] == ["model", "the model with position"]
    assert len(sections(judged.rows)["position"].rows) == len(WEIGHTS)


COLUMNS = Columns(images="auto", sentences="auto", links=True, places=True)


def distances(documents: DocumentSet, number: int, side: Side, texts: int | None = None) -> np.ndarray:
    """Return the distances of the sentences of one document and the images of another (infinite where unknown)."""
    numbers = documents.sentence_numbers[documents.sentences.rows(number if texts is None else texts)]
    places = documents.after_sentence[documents.images.rows(number)].astype(float)
    places[places == UNKNOWN_PLACE] = np.inf
    return np.abs(numbers[:, None] + OFFSETS[side] - places[None, :])


def loss_by_hand(lake: Lake, model: LinkModel, weight: float, side: Side) -> float:
    """Return the hinge loss of each validation batch with its hardest negatives, from one matrix at a time."""
    manifest, folder = read_manifest(lake, "synthetic")
    documents = read_split(manifest, folder, Split.VAL, COLUMNS)
    vectors, losses = model.embed(documents), []
    usable = read_index(manifest, folder, Split.VAL).usable
    bounds = validation_bounds(len(usable), negative_documents=4).tolist()
    for first, last in pairwise(bounds):
        batch = usable[first:last]
        table = np.zeros((len(batch), len(batch)))
        for i, j in product(range(len(batch)), repeat=2):
            cosines = vectors[batch[i]].texts @ vectors[batch[j]].images.T
            near = distances(documents, int(batch[j]), side, int(batch[i]))
            matrix = (1 - weight) * cosines + weight / (1 + near) * np.isfinite(near)
            table[i, j] = float(set_similarity(torch.from_numpy(matrix), "dc", combine=Combine.SUM))
        for i in range(len(batch)):
            others = [j for j in range(len(batch)) if j != i]
            losses.append(
                sum(
                    max([0.0, *(0.2 - table[i, i] + (table[i, j] if is_row else table[j, i]) for j in others)])
                    for is_row in (True, False)
                )
            )
    return float(np.mean(losses))


def test_the_ablation_needs_places_and_a_loss_without_links(lake: Lake, model: LinkModel, tmp_path: Path) -> None:
    asked = replace(STANDARD_CONFIG, position=True)

    def reason(of: Lake, judged: LinkModel) -> str:
        rows = judge_model(judged, of, "synthetic", Split.TEST, config=asked).rows
        return next(row.note for row in rows if (row.measure, row.metric) == ("position", "absent"))

    made = lakes.splits(train=6, val=6, test=6)
    bare = lakes.write_lake(tmp_path / "bare", made)
    assert "has no positions of images" in reason(bare, model)
    half = made | {Split.TEST: lakes.with_places(made[Split.TEST])}
    assert reason(lakes.write_lake(tmp_path / "half", half), model).startswith("the validation split has no positions")
    del half[Split.VAL]
    assert "no validation split" in reason(lakes.write_lake(tmp_path / "none", half), model)
    supervised = replace(CONFIG, objective=objective("supervised"))
    assert "made of them" in reason(lake, LinkModel(replace(model.card, config=supervised), None))
    quiet = judge_model(model, lake, "synthetic", Split.TEST).rows
    assert not [row for row in quiet if row.measure == "position"]
