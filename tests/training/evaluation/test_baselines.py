from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest

from schemas.documents import Split
from schemas.lake import Lake
from schemas.messages import NotFoundError, UsageError
from training.data.documents import ClassBank, DocumentSet, GivenDocument
from training.data.ragged import Ragged
from training.evaluation.baselines import (
    Baseline,
    auc_by_k,
    class_means,
    class_word_vectors,
    evaluate_baseline,
    evaluate_object_detection,
    joint_embeddings,
    object_detection_scores,
)
from training.evaluation.evaluate import STANDARD_CONFIG, random_similarities
from training.evaluation.models import CLASS_NAMES, class_names_model
from training.linking.links import Linker
from training.metrics.links import score_documents
from training.mlflow.loading import open_model

VECTORS = {
    "dog": np.array([1.0, 0, 0], np.float32),
    "beagle": np.array([0.9, 0.1, 0], np.float32),
    "soup": np.array([0, 1.0, 0], np.float32),
    "bowl": np.array([0, 0.8, 0.6], np.float32),
}


def documents(first: str = "a Beagle") -> DocumentSet:
    """Two documents with a dog and a soup each; the likeliest class of the second dog is wrong, the next are right."""
    return DocumentSet(
        ids=("a", "b"),
        texts=(first, "a soup!", "the dog", "soup bowl"),
        sentences=Ragged.of([2, 2]),
        sentence_numbers=np.array([0, 1, 0, 1]),
        sentence_vectors=None,
        image_rows=np.array([0, 1, 2, 1]),
        images=Ragged.of([2, 2]),
        image_hashes=("x", "y", "z"),
        image_bank=np.zeros((3, 0), np.float16),
        links=(np.array([[0, 0], [1, 1]]), np.array([[0, 0], [1, 1]])),
        classes=ClassBank(
            labels=(("beagle", "dog", ""), ("soup bowl", "unseen", "soup"), ("soup bowl", "dog", "beagle")),
            probabilities=np.array([[0.6, 0.4, 0], [0.5, 0.3, 0.2], [0.4, 0.35, 0.25]], np.float32),
        ),
    )


def test_images_are_means_of_their_likeliest_labels() -> None:
    bank = documents().classes
    assert np.allclose(class_means(bank, VECTORS, k=1, dimensions=3)[1], [0, 0.9, 0.3])
    two = class_means(bank, VECTORS, k=2, dimensions=3)
    assert np.allclose(two[0], [0.95, 0.05, 0])
    assert np.allclose(two[1], [0, 0.9, 0.3])  # a label without a vector is passed over
    three = class_means(bank, VECTORS, k=3, dimensions=3)
    assert np.allclose(three[1], [0, 0.95, 0.15])


def test_scores_are_cosines_of_means() -> None:
    first, _ = object_detection_scores(documents(), VECTORS, k=1)
    beagle, bowl = VECTORS["beagle"], np.array([0, 0.9, 0.3])
    assert first[0, 0] == pytest.approx(1)
    assert first[0, 1] == pytest.approx(beagle @ bowl / np.linalg.norm(beagle) / np.linalg.norm(bowl), abs=1e-6)
    nothing, _ = object_detection_scores(documents("unknown words"), VECTORS, k=1)
    assert nothing[0].tolist() == [0, 0]


def test_k_is_chosen_on_validation_and_its_best_on_test_is_told_apart() -> None:
    auc = auc_by_k(documents(), VECTORS, range(1, 4))
    assert auc[1] < auc[3] == 100
    best = next(k for k, value in auc.items() if value == 100)
    easy = replace(documents(), image_rows=np.array([0, 1, 0, 1]))  # on which one class is enough
    found = evaluate_object_detection(documents(), easy, VECTORS, where="test")
    assert found.note == f"K = 1 by validation; the best here, {best}, has AUC 100.0" and best > 1
    assert found.evaluation.mean["auc"].value == auc[1]
    unchosen = evaluate_object_detection(documents(), None, VECTORS, where="test")
    assert (
        unchosen.note.startswith(f"K = {best}, the best on these documents")
        and unchosen.evaluation.mean["auc"].value == 100
    )


def test_words_of_sentences_and_labels_are_looked_up(tmp_path) -> None:  # type: ignore[no-untyped-def]
    lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in VECTORS.items()]
    (tmp_path / "v.txt").write_text("\n".join([*lines, "cat 1 2 3", ""]))
    found = class_word_vectors(str(tmp_path / "v.txt"), documents(), dimensions=3)
    assert found.keys() == VECTORS.keys()


@pytest.mark.parametrize(
    ("lacks", "words"),
    [({"classes": None}, "no classes"), ({"links": (None, None)}, "expected documents with some linked")],
)
def test_what_is_missing_is_named(lacks: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        evaluate_object_detection(replace(documents(), **lacks), None, VECTORS, where="test")


def test_joint_embeddings_are_compared_as_they_are() -> None:
    rng = np.random.default_rng(0)
    texts, bank = rng.normal(size=(4, 5)).astype(np.float16), rng.normal(size=(3, 5)).astype(np.float16)
    joint = joint_embeddings(replace(documents(), sentence_vectors=texts, image_bank=bank))
    first, second = (each.similarities() for each in joint)
    t, v = texts[3].astype(float), bank[2].astype(float)
    assert second[1, 0] == pytest.approx(t @ v / np.linalg.norm(t) / np.linalg.norm(v), abs=1e-4)
    assert first.shape == second.shape == (2, 2)
    with pytest.raises(UsageError, match="need sentence vectors"):
        joint_embeddings(documents())
    with pytest.raises(UsageError, match="sentence vectors have 5 numbers, image vectors 2"):
        joint_embeddings(replace(documents(), sentence_vectors=texts, image_bank=bank[:, :2]))


def test_its_similarities_are_plain_cosines() -> None:
    rng = np.random.default_rng(0)
    texts, images = rng.normal(size=(4, 512)).astype(np.float32), rng.normal(size=(3, 512)).astype(np.float32)
    model = class_names_model()
    given = GivenDocument(id="a", texts=["x"] * 4, image_vectors=images, sentence_vectors=texts)
    found = next(Linker(model=model, uri=CLASS_NAMES).link_given([given]))
    unit_texts, unit_images = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (texts, images))
    assert found.similarities == pytest.approx(unit_texts @ unit_images.T, abs=1e-6)
    assert (model.card.data.image_features, model.card.data.sentence_features) == (
        "efficientnet-lite0-names",
        "use-multilingual",
    )


def test_it_is_opened_by_its_name_without_a_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'none.db'}"
    loaded = open_model(CLASS_NAMES, store)
    assert (loaded.uri, loaded.calibration) == (CLASS_NAMES, None)
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(NotFoundError):
        open_model("class-name", store)


def test_a_data_set_without_the_columns_says_how_to_build_it(tmp_path: Path) -> None:
    made = lakes.make_documents(Split.TEST, 4, lakes.World())
    lake: Lake = lakes.write_lake(tmp_path, {Split.TEST: made})
    with pytest.raises(UsageError, match=r"no vectors of class names; build it with .*efficientnet-lite0-names"):
        evaluate_baseline(Baseline.CLASS_NAMES, lake, "synthetic", Split.TEST, config=STANDARD_CONFIG)


def test_scores_depend_on_document_and_seed_alone() -> None:
    assert np.array_equal(random_similarities("a", 3, 4), random_similarities("a", 3, 4))
    assert not np.array_equal(random_similarities("a", 3, 4), random_similarities("b", 3, 4))
    assert not np.array_equal(random_similarities("a", 3, 4), random_similarities("a", 3, 4, seed=1))
    assert random_similarities("a", 0, 4).shape == (0, 4)


def test_auc_is_half_and_precision_the_density() -> None:
    links = [(i, i) for i in range(5)]
    matrices = [random_similarities(str(number), 5, 5) for number in range(2000)]
    mean = score_documents(matrices, [links] * 2000).means()
    assert abs((mean["auc"].value or 0) - 50) < 1
    assert abs((mean["precision_at_1"].value or 0) - 20) < 3
