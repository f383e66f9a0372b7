"""The terms of an objective against loops written from the papers' equations."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from set_similarity import set_similarity
from torch.nn import functional as F

from schemas.configs import resolve, restore
from schemas.messages import ConfigError, UsageError
from schemas.overrides import override
from training.config import TrainConfig, objective
from training.data.ragged import Ragged, choose_all
from training.loop.encoding import losses as total_losses
from training.objectives.batch import DrawKey, EncodedBatch, Relations
from training.objectives.labelled import relation_losses
from training.objectives.pairs import euclidean_batch_hard_losses, hal_losses, triplet_sum_losses
from training.objectives.ranking import (
    Loss,
    Negatives,
    NoStruct,
    cross_document_losses,
    sub_documents,
)

SENTENCES, IMAGES = [3, 5, 1, 4], [2, 4, 3, 1]
MOMENT = DrawKey(split="training", epoch=2, step=5, seed=3)


def batch(sentences: list[int], images: list[int], **more: object) -> EncodedBatch:
    generator = torch.Generator().manual_seed(0)
    text, image = (
        F.normalize(torch.randn(sum(counts), 6, generator=generator, dtype=torch.float64), dim=1).requires_grad_()
        for counts in (sentences, images)
    )
    return EncodedBatch(
        ids=tuple(f"d{number}" for number in range(len(sentences))),
        text_vectors=text,
        image_vectors=image,
        sentences=Ragged.of(np.array(sentences)),
        images=Ragged.of(np.array(images)),
        allowed=~torch.eye(len(sentences), dtype=torch.bool),
        draw_key=MOMENT,
        **more,
    )


def losses(name: str, given: EncodedBatch, **settings: object) -> torch.Tensor:
    return total_losses(objective(name, **settings), given).detach()


def test_intra_document_by_the_equation() -> None:
    given = batch(SENTENCES, IMAGES)
    found = losses("intra", given, margin=0.5)
    blocks = [
        s @ v.T for s, v in zip(given.text_vectors.split(SENTENCES), given.image_vectors.split(IMAGES), strict=True)
    ]
    for value, matrix in zip(found.tolist(), blocks, strict=True):
        most = float(set_similarity(matrix.detach(), "tk"))
        least = -float(set_similarity(-matrix.detach(), "tk"))
        assert value == pytest.approx(max(0.0, 0.25 - most + least))


def similarities(given: EncodedBatch, kind: str) -> torch.Tensor:
    """Return D x D: of every sentence set and every image set."""
    texts, images = given.text_vectors.detach().split(SENTENCES), given.image_vectors.detach().split(IMAGES)
    return torch.stack([torch.stack([set_similarity(s @ v.T, kind) for v in images]) for s in texts])


@pytest.mark.parametrize("kind", ["dc", "tk", "ap"])
def test_cross_document_by_the_equation(kind: str) -> None:
    given = batch(SENTENCES, IMAGES)
    expected = cross_document_losses(similarities(given, kind), given.allowed, margin=0.2)
    assert torch.allclose(losses("cross", given, similarity=kind), expected)


@pytest.mark.parametrize("similarity", ["dc", "tk", "ap"])
def test_dropout_sub_document_by_the_equation(similarity: str) -> None:
    given = batch(SENTENCES, IMAGES)
    found = losses("dropout", given, similarity=similarity, kept_share=0.6, margin=0.4)
    parts = sub_documents(given, np.arange(4), MOMENT, kept_share=0.6)
    assert parts.sentences.counts.tolist() == [1, 3, 1, 2]
    assert parts.images.counts.tolist() == [1, 2, 1, 1]
    sub_texts = given.text_vectors.detach()[parts.sentence_rows].split(parts.sentences.counts.tolist())
    sub_images = given.image_vectors.detach()[parts.image_rows].split(parts.images.counts.tolist())
    table = similarities(given, similarity)
    for number, (texts, images) in enumerate(zip(sub_texts, sub_images, strict=True)):
        table[number, number] = set_similarity(texts @ images.T, similarity)
    assert torch.allclose(found, cross_document_losses(table, given.allowed, margin=0.2))


def test_sub_documents_are_the_document_s_own_different_rows_and_new_at_each_step() -> None:
    given = batch([9, 10], [7, 10])
    parts = sub_documents(given, np.arange(2), MOMENT, kept_share=0.7)
    assert parts.sentences.counts.tolist() == [6, 7]
    assert parts.images.counts.tolist() == [4, 7]
    for chosen, offsets, counts in (
        (parts.sentence_rows, given.sentences.offsets, parts.sentences.counts),
        (parts.image_rows, given.images.offsets, parts.images.counts),
    ):
        assert len(set(chosen.tolist())) == len(chosen)
        owners = np.searchsorted(offsets, chosen, side="right") - 1
        assert owners.tolist() == np.repeat([0, 1], counts).tolist()
    alone = sub_documents(given, np.array([1]), MOMENT, kept_share=0.7)
    assert alone.sentence_rows.tolist() == parts.sentence_rows[6:].tolist()
    other = sub_documents(given, np.arange(2), DrawKey(split="training", epoch=2, step=6), kept_share=0.7)
    assert other.sentence_rows.tolist() != parts.sentence_rows.tolist()


def test_a_sub_document_keeps_each_row_equally_often() -> None:
    given = batch([5], [5])
    kept = np.zeros(5)
    for step in range(1500):
        draw_key = DrawKey(split="training", epoch=1, step=step)
        kept[sub_documents(given, np.array([0]), draw_key, kept_share=0.6).sentence_rows] += 1
    assert np.abs(kept / 1500 - 0.6).max() < 0.05


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("cross+intra+dropout", ("cross-document", "intra-document", "dropout-subdocument")),
        ("intra+cross", ("cross", "intra")),
        ("nostruct+cross-document", ("cross", "nostruct")),
    ],
)
def test_a_sum_is_the_sum_of_its_terms(name: str, parts: tuple[str, ...]) -> None:
    same = {"negatives": "mean"} if "nostruct" in name else {}
    expected = sum(losses(part, batch(SENTENCES, IMAGES), **same) for part in parts)
    assert torch.allclose(losses(name, batch(SENTENCES, IMAGES), **same), expected)


def test_nostruct_in_a_sum_draws_what_it_draws_alone() -> None:
    term = NoStruct()
    whole = batch(SENTENCES, IMAGES)
    choice = term.choose(whole, np.arange(4), MOMENT)
    drawn = EncodedBatch(
        ids=whole.ids,
        text_vectors=whole.text_vectors[choice.sentence_rows],
        image_vectors=whole.image_vectors[choice.image_rows],
        sentences=choice.sentences,
        images=choice.images,
        allowed=whole.allowed,
        draw_key=MOMENT,
    )
    assert torch.allclose(term.losses(drawn), losses("nostruct", whole))


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("negatives", list(Negatives))
def test_what_negatives_cost_by_the_equations(loss: Loss, negatives: Negatives) -> None:
    similarity = torch.tensor([[0.5, 0.4, 0.1], [0.6, 0.7, 0.2], [0.0, 0.3, 0.9]], dtype=torch.float64)
    allowed = torch.tensor([[False, True, False], [True, False, True], [False, True, False]])
    found = cross_document_losses(similarity, allowed, margin=0.2, loss=loss, negatives=negatives)

    def cost(own: float, others: list[float]) -> float:
        if loss is Loss.SOFTMAX:
            lowered = math.exp(own - 0.2)
            return -math.log(lowered / (lowered + sum(map(math.exp, others))))
        each = [max(0.0, 0.2 - own + q) if loss is Loss.HINGE else math.log(1 + math.exp(q - own)) for q in others]
        return max(each) if negatives is Negatives.HARDEST else sum(each) / len(each)

    table = similarity.tolist()
    for i in range(3):
        others = [j for j in range(3) if allowed[i, j]]
        expected = cost(table[i][i], [table[i][j] for j in others]) + cost(table[i][i], [table[j][i] for j in others])
        assert float(found[i]) == pytest.approx(expected)


def test_pair_losses_by_the_equations() -> None:
    generator = torch.Generator().manual_seed(1)
    text, image = (F.normalize(torch.randn(5, 3, generator=generator, dtype=torch.float64), dim=1) for _ in range(2))
    allowed = ~torch.eye(5, dtype=torch.bool)
    allowed[1, 2] = allowed[2, 1] = False
    cosines = text @ image.T
    s = cosines.tolist()
    hardest = cross_document_losses(cosines, allowed, margin=0.3).tolist()
    total = triplet_sum_losses(cosines, allowed, margin=0.3).tolist()
    hal = hal_losses(cosines, allowed, alpha=20, beta=30, epsilon=0.2).tolist()
    euclidean = euclidean_batch_hard_losses(text, image, allowed, margin=0.3).tolist()
    rows = torch.cat([text, image])
    for i in range(5):
        others = [j for j in range(5) if allowed[i, j]]
        by_image = [max(0.0, 0.3 - s[i][i] + s[i][j]) for j in others]
        by_text = [max(0.0, 0.3 - s[i][i] + s[j][i]) for j in others]
        assert hardest[i] == pytest.approx(max(by_image) + max(by_text))
        assert total[i] == pytest.approx(sum(by_image) + sum(by_text))
        sums = [
            1 + sum(math.exp(20 * (q - 0.2)) for q in qs)
            for qs in zip(*[(s[i][j], s[j][i]) for j in others], strict=True)
        ]
        assert hal[i] == pytest.approx(sum(map(math.log, sums)) / 20 - math.log(1 + 30 * max(0.0, s[i][i])))
        own = float(torch.dist(text[i], image[i]))
        anchors = [min(float(torch.dist(rows[a], rows[j + k])) for j in others for k in (0, 5)) for a in (i, i + 5)]
        assert euclidean[i] == pytest.approx(sum(max(0.0, 0.3 + own - near) for near in anchors) / 2)


def test_pairs_without_a_negative_cost_nothing_but_their_own() -> None:
    one = torch.tensor([[0.5]], dtype=torch.float64)
    nothing = torch.zeros(1, 1, dtype=torch.bool)
    assert cross_document_losses(one, nothing, margin=0.3).tolist() == [0]
    assert triplet_sum_losses(one, nothing, margin=0.3).tolist() == [0]
    assert hal_losses(one, nothing, alpha=20, beta=30, epsilon=0.2).tolist() == pytest.approx([-math.log(16)])
    row = torch.tensor([[0.6, 0.8]])
    assert euclidean_batch_hard_losses(row, -row, nothing, margin=0.3).tolist() == [0]


def test_euclidean_gradient_is_finite_where_text_and_image_are_equal() -> None:
    rows = F.normalize(torch.randn(3, 4), dim=1).requires_grad_()
    euclidean_batch_hard_losses(rows, rows, ~torch.eye(3, dtype=torch.bool), margin=0.3).sum().backward()
    assert rows.grad is not None and bool(torch.isfinite(rows.grad).all())


def test_relations_cost_their_weighted_cross_entropy_and_unknown_ones_nothing() -> None:
    relations = Relations(
        logits=torch.tensor([[0.5, -1.0], [2.0, 0.3]], requires_grad=True),
        labels=torch.tensor([[1.0, torch.nan], [0.0, 1.0]]),
        weights=torch.tensor([2.0, 5.0]),
    )

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    found = relation_losses(relations)
    expected = [-2 * math.log(sigmoid(0.5)), -2 * math.log(1 - sigmoid(2.0)) - 5 * math.log(sigmoid(0.3))]
    assert found.tolist() == pytest.approx(expected)
    found.sum().backward()
    assert relations.logits.grad is not None
    assert relations.logits.grad[0, 1] == 0
    assert bool(torch.isfinite(relations.logits.grad).all())


def test_coherence_aware_is_retrieval_and_a_tenth_of_the_relations() -> None:
    relations = Relations(
        logits=torch.zeros(3, 1), labels=torch.tensor([[1.0], [0.0], [torch.nan]]), weights=torch.ones(1)
    )
    given = batch([1] * 3, [1] * 3, relations=relations)
    retrieval = losses("triplet-hardest", batch([1] * 3, [1] * 3), margin=0.3)
    expected = retrieval + 0.1 * torch.tensor([math.log(2), math.log(2), 0.0])
    assert torch.allclose(losses("coherence-aware", given, margin=0.3), expected)
    assert torch.allclose(losses("coherence-aware", batch([1] * 3, [1] * 3), margin=0.3), retrieval)


def test_order_embeddings_by_the_equation() -> None:
    given = batch([1] * 4, [1] * 4)
    given = replace(given, text_vectors=given.text_vectors.abs(), image_vectors=given.image_vectors.abs())
    found = losses("order", given, margin=0.05)
    texts, images = given.text_vectors.tolist(), given.image_vectors.tolist()

    def similarity(text: list[float], image: list[float]) -> float:
        return -sum(max(0.0, a - b) ** 2 for a, b in zip(text, image, strict=True))

    for i, value in enumerate(found.tolist()):
        own = similarity(texts[i], images[i])
        others = [j for j in range(4) if j != i]
        wrong = [similarity(texts[i], images[j]) for j in others] + [similarity(texts[j], images[i]) for j in others]
        assert value == pytest.approx(sum(max(0.0, 0.05 - own + each) for each in wrong))


@pytest.mark.parametrize("name", ["triplet-hardest", "triplet-sum", "hal", "order", "euclidean-batch-hard"])
def test_a_pair_objective_names_the_document_that_is_no_pair(name: str) -> None:
    with pytest.raises(UsageError, match="document d1 has 2 texts and 1 images"):
        losses(name, batch([1, 2], [1, 1]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cross+cros", r"found 'cros'"),
        ("cross+cross-document", "names a term twice"),
        ("coherence", "triplet-hardest.coherence"),
        ("", "expected one of"),
    ],
)
def test_a_wrong_name_is_one_line(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(objective=objective(name))


def test_names_are_settings() -> None:
    config = override(
        TrainConfig(),
        ["objective.name=dropout+intra+cross", "objective.kept_share=0.8", "objective.loss=softmax"],
    )
    assert config.objective_name == "cross-document+intra-document+dropout-subdocument"
    assert restore(TrainConfig, resolve(config)) == config
    cross, _, dropout = config.objective
    assert cross.loss is dropout.loss is Loss.SOFTMAX and dropout.kept_share == 0.8
    assert replace(config, objective=objective("coherence-aware")).needs.relations == "all"
    assert replace(config, objective=objective("hal")).needs.pairs and not config.needs.pairs


@pytest.mark.parametrize(("name", "settings"), [("cross+intra+dropout", {"similarity": "tk"}), ("nostruct", {})])
def test_every_term_s_gradient_is_its_derivative(name: str, settings: dict[str, Any]) -> None:
    terms = objective(name, loss=Loss.SOFTMAX, **settings)
    given = batch([3, 2, 2], [2, 3, 1])

    def total(texts: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        changed = EncodedBatch(
            ids=given.ids,
            text_vectors=texts,
            image_vectors=images,
            sentences=given.sentences,
            images=given.images,
            allowed=given.allowed,
        )
        return total_losses(terms, changed).sum()

    assert torch.autograd.gradcheck(total, (given.text_vectors, given.image_vectors))


def test_a_batch_is_ragged() -> None:
    given = batch(SENTENCES, IMAGES)
    assert choose_all(given, np.array([1])).sentence_rows.tolist() == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("name", ["cross", "dropout", "nostruct"])
def test_negatives_count_by_their_mean_in_the_first_epochs_of_training(name: str) -> None:
    given, later = batch(SENTENCES, IMAGES), {"negatives": Negatives.HARDEST}  # a batch of epoch 2
    mean, hardest = losses(name, given, negatives=Negatives.MEAN), losses(name, given, **later)
    assert not torch.equal(mean, hardest)
    assert torch.equal(losses(name, given, **later, mean_epochs=2), mean)
    assert torch.equal(losses(name, given, **later, mean_epochs=1), hardest)
    validation = replace(given, draw_key=DrawKey(split="validation", epoch=0, step=0))
    assert torch.equal(losses(name, validation, **later, mean_epochs=2), losses(name, validation, **later))
