from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from set_similarity import set_similarity

from training.data.documents import DocumentSet
from training.data.ragged import Ragged
from training.objectives.batch import DrawKey, EncodedBatch
from training.objectives.ranking import CrossDocument, Negatives, NoStruct, cross_document_losses

SIMILARITY = torch.tensor([[0.5, 0.4, 0.1], [0.6, 0.7, 0.2], [0.0, 0.3, 0.9]])
OTHERS = ~torch.eye(3, dtype=torch.bool)


def test_hardest_negatives_by_hand() -> None:
    losses = cross_document_losses(SIMILARITY, OTHERS, margin=0.2)
    # document 0: image sets 0.2 - 0.5 + (0.4, 0.1) -> 0.1; sentence sets 0.2 - 0.5 + (0.6, 0.0) -> 0.3
    # document 1: 0.2 - 0.7 + (0.6, 0.2) -> 0.1; 0.2 - 0.7 + (0.4, 0.3) -> 0
    assert losses.tolist() == pytest.approx([0.4, 0.1, 0.0], abs=1e-6)


def test_mean_over_negatives_by_hand() -> None:
    losses = cross_document_losses(SIMILARITY, OTHERS, margin=0.2, negatives=Negatives.MEAN)
    assert losses.tolist() == pytest.approx([0.1 / 2 + 0.3 / 2, 0.1 / 2, 0.0], abs=1e-6)


def test_a_version_of_the_same_image_set_is_no_negative() -> None:
    allowed = OTHERS.clone()
    allowed[0, 1] = allowed[1, 0] = False
    assert cross_document_losses(SIMILARITY, allowed, margin=0.2).tolist() == pytest.approx([0.0, 0.0, 0.0])
    loose = cross_document_losses(SIMILARITY, allowed, margin=1.0, negatives=Negatives.MEAN)
    assert loose[0] == pytest.approx(0.6 + 0.5)
    nothing = torch.zeros((3, 3), dtype=torch.bool)
    for negatives in Negatives:
        assert not cross_document_losses(SIMILARITY, nothing, margin=1.0, negatives=negatives).any()


def test_equal_similarities_cost_two_margins() -> None:
    losses = cross_document_losses(torch.zeros(3, 3), OTHERS, margin=0.2)
    assert losses.tolist() == pytest.approx([0.4, 0.4, 0.4])


@pytest.mark.parametrize("similarity", ["dc", "tk", "ap"])
def test_cross_document_is_the_paper_s_equation(similarity: str) -> None:
    torch.manual_seed(0)
    sentences, images = [2, 3, 1], [4, 1, 2]
    text = torch.nn.functional.normalize(torch.randn(6, 5), dim=1)
    image = torch.nn.functional.normalize(torch.randn(7, 5), dim=1)
    batch = EncodedBatch(
        ids=("a", "b", "c"),
        text_vectors=text,
        image_vectors=image,
        sentences=Ragged.of(np.array(sentences)),
        images=Ragged.of(np.array(images)),
        allowed=OTHERS,
    )
    found = CrossDocument(similarity=similarity).losses(batch)  # type: ignore[arg-type]
    s, v = text.split(sentences), image.split(images)
    for i in range(3):
        own = float(set_similarity(s[i] @ v[i].T, similarity))
        others = [j for j in range(3) if j != i]
        over_images = max(max(0.0, 0.2 - own + float(set_similarity(s[i] @ v[j].T, similarity))) for j in others)
        over_sentences = max(max(0.0, 0.2 - own + float(set_similarity(s[j] @ v[i].T, similarity))) for j in others)
        assert float(found[i]) == pytest.approx(over_images + over_sentences, abs=1e-5)


def documents(count: int = 30) -> DocumentSet:
    sentences, images = [1 + i % 4 for i in range(count)], [1 + i % 3 for i in range(count)]
    return DocumentSet(
        ids=tuple(f"d{i}" for i in range(count)),
        texts=("",) * sum(sentences),
        sentences=Ragged.of(sentences),
        sentence_numbers=Ragged.of(sentences).numbers,
        sentence_vectors=None,
        image_rows=np.zeros(sum(images), np.int64),
        images=Ragged.of(images),
        image_hashes=("x",),
        image_bank=np.zeros((1, 2), np.float16),
    )


def draw_key(step: int = 0) -> DrawKey:
    return DrawKey(split="training", epoch=1, step=step)


def test_nostruct_draws_one_of_each_document_s_own() -> None:
    given = documents()
    term = NoStruct()
    rows = np.arange(30)
    choice = term.choose(given, rows, draw_key())
    assert (choice.sentence_rows >= given.sentences.offsets[rows]).all()
    assert (choice.sentence_rows < given.sentences.offsets[rows + 1]).all()
    assert (choice.image_rows >= given.images.offsets[rows]).all()
    assert (choice.image_rows < given.images.offsets[rows + 1]).all()
    assert choice.sentences.counts.tolist() == choice.images.counts.tolist() == [1] * 30


def test_nostruct_draws_depend_on_the_document_and_the_moment_alone() -> None:
    term = NoStruct()
    given = documents()
    together = term.choose(given, np.arange(30), draw_key())
    for row in (3, 17):
        alone = term.choose(given, np.array([row]), draw_key())
        assert alone.sentence_rows[0] == together.sentence_rows[row]
        assert alone.image_rows[0] == together.image_rows[row]
    other = term.choose(given, np.arange(30), draw_key(step=1))
    assert (other.sentence_rows != together.sentence_rows).any()
    assert term.choose(given, np.array([], np.int64), draw_key()).sentence_rows.shape == (0,)


def test_nostruct_draws_are_uniform() -> None:
    term = NoStruct()
    drawn = Counter(
        int(term.choose(documents(4), np.array([3]), draw_key(step)).sentence_rows[0] - 6) for step in range(2000)
    )
    assert sorted(drawn) == [0, 1, 2, 3]
    assert all(abs(count - 500) < 100 for count in drawn.values())


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_nostruct_compares_scaled_cosines(scale: float) -> None:
    term = NoStruct(cosine_scale=scale)
    text, image = torch.eye(3), torch.tensor([[0.6, 0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])
    ones = Ragged.of([1, 1, 1])
    batch = EncodedBatch(
        ids=("a", "b", "c"), text_vectors=text, image_vectors=image, sentences=ones, images=ones, allowed=OTHERS
    )
    cosines = (scale * text @ image.T).tolist()
    mean, hardest = [], []
    for i in range(3):
        images = [max(0.0, 0.2 - cosines[i][i] + cosines[i][j]) for j in range(3) if j != i]
        texts = [max(0.0, 0.2 - cosines[i][i] + cosines[j][i]) for j in range(3) if j != i]
        mean.append(sum(images) / 2 + sum(texts) / 2)
        hardest.append(max(images) + max(texts))
    assert torch.allclose(term.losses(batch), torch.tensor(mean))
    early = replace(term, negatives=Negatives.HARDEST, mean_epochs=1)
    for epoch, expected in ((1, mean), (2, hardest)):
        later = replace(batch, draw_key=DrawKey(split="training", epoch=epoch, step=0))
        assert torch.allclose(early.losses(later), torch.tensor(expected))
