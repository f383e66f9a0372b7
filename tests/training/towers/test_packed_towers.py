"""Each tower against a slow, padded or one-at-a-time computation of the same mathematics from torch's own modules."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.data.documents import RegionBank
from training.data.ragged import Ragged
from training.text.vocabulary import Vocabulary
from training.towers.bilstm_attention import BilstmAttentionSettings, BilstmAttentionTower
from training.towers.inputs import ImageInput, Sizes, TextInput
from training.towers.packing import Packing, attend, blocks, largest_of, mean_of, pool, softmax_pool
from training.towers.region_concept import RegionConceptSettings, RegionConceptTower
from training.towers.transformer import Transformer, TransformerLayer, TransformerSettings, TransformerTower

VOCABULARY = Vocabulary(("<pad>", "<unk>", *(f"w{i}" for i in range(20))))
TEXTS = ["w1 w2 w3", "", "w4", "w5 w6 w7 w8 w9 w1", "nothing known", "w2 w3", "w1 w2 w3"]


def transformer_tower(dropout: float = 0.0) -> TransformerTower:
    torch.manual_seed(0)
    config = TransformerSettings(
        word_dimensions=6, layers=2, heads=2, hidden_dimensions=10, dropout=dropout, max_words=5
    )
    return TransformerTower(config, Sizes(dimensions=8), VOCABULARY)


def reference_layer(layer: TransformerLayer) -> nn.TransformerEncoderLayer:
    size = layer.narrow.out_features
    reference = nn.TransformerEncoderLayer(size, layer.heads, layer.widen.out_features, dropout=0.0, batch_first=True)
    own = layer.state_dict()
    names = {
        "self_attn.in_proj_": "attention_in.",
        "self_attn.out_proj.": "attention_out.",
        "linear1.": "widen.",
        "linear2.": "narrow.",
        "norm1.": "attention_norm.",
        "norm2.": "norm.",
    }
    reference.load_state_dict(
        {theirs + kind: own[mine + kind] for theirs, mine in names.items() for kind in ("weight", "bias")}
    )
    return reference


def padded_transformer(transformer: Transformer, padded_NLD: Tensor, is_padding_NL: Tensor) -> Tensor:
    for layer in transformer.layers:
        padded_NLD = reference_layer(layer)(padded_NLD, src_key_padding_mask=is_padding_NL)
    return padded_NLD


def masked_mean(padded_NLD: Tensor, is_padding_NL: Tensor) -> Tensor:
    kept = (~is_padding_NL).float()[..., None]
    return (padded_NLD * kept).sum(dim=1) / kept.sum(dim=1)


def regions(counts: list[int], features: int = 5, seed: int = 0) -> RegionBank:
    rng = np.random.default_rng(seed)
    total = sum(counts)
    return RegionBank(
        images=Ragged.of(counts),
        labels=tuple(("w1 w2", "w3", "odd thing", "w4")[i % 4] for i in range(total)),
        vectors=rng.normal(size=(total, features)).astype(np.float16),
        boxes=np.zeros((total, 4), np.float32),
        scores=rng.random(total).astype(np.float32),
    )


def images(bank: RegionBank) -> ImageInput:
    return ImageInput(vectors=np.zeros((len(bank.images), 0), np.float16), regions=bank)


def region_tower(
    *, concepts: bool, layers: int, most: int = 36, text: TransformerTower | None = None
) -> RegionConceptTower:
    config = RegionConceptSettings(
        concepts=concepts,
        transformer=bool(layers),
        layers=max(layers, 1),
        heads=2,
        hidden_dimensions=10,
        dropout=0.0,
        max_regions=most,
    )
    return RegionConceptTower(config, Sizes(dimensions=8, region=5), text or transformer_tower()).eval()


def test_packing_lays_equal_lengths_side_by_side() -> None:
    packing = Packing.of(Ragged.of([2, 1, 2, 1]))
    assert packing.order.tolist() == [1, 3, 0, 2]
    assert packing.positions.tolist() == [2, 5, 0, 1, 3, 4]
    assert packing.groups == ((2, 1), (2, 2))
    assert packing.steps.tolist() == [0, 0, 0, 1, 0, 1]
    assert packing.restore(torch.tensor([1.0, 3.0, 0.0, 2.0])).tolist() == [0, 1, 2, 3]


def test_pooling_equals_row_by_row() -> None:
    sets = Ragged.of([2, 1, 4, 2])
    torch.manual_seed(0)
    tokens, scores = torch.randn(9, 4), torch.randn(9, 1)
    packing = Packing.of(sets)
    packed, packed_scores = tokens[packing.positions], scores[packing.positions]
    rows = list(sets)
    assert torch.allclose(pool(packed, packing, mean_of), torch.stack([tokens[row].mean(0) for row in rows]))
    assert torch.equal(pool(packed, packing, largest_of), torch.stack([tokens[row].amax(0) for row in rows]))
    expected = torch.stack([(scores[row].softmax(0) * tokens[row]).sum(0) for row in rows])
    assert torch.allclose(softmax_pool(packed, packed_scores, packing), expected, atol=1e-6)


def test_no_rows_are_fine() -> None:
    packing = Packing.of(Ragged.of([]))
    nothing = torch.zeros((0, 4))
    assert blocks(nothing, packing.groups) == []
    assert pool(nothing, packing, mean_of).shape == (0, 4)
    assert attend(nothing, nothing, nothing, packing, heads=2).shape == (0, 4)


def test_transformer_tower_equals_torch_on_padded_sentences() -> None:
    tower = transformer_tower().eval()
    rows = tower.prepare(TextInput(texts=TEXTS))
    lengths = rows.sentences.counts
    words = torch.zeros((len(TEXTS), 5), dtype=torch.int64)
    for n, length in enumerate(lengths):
        words[n, :length] = torch.from_numpy(rows.words[rows.sentences.rows(n)].astype(np.int64))
    is_padding = torch.arange(5)[None] >= torch.from_numpy(lengths)[:, None]
    embedded = tower.project(tower.norm(tower.embedding(words) + tower.position.weight[None]))
    encoded = padded_transformer(tower.transformer, embedded, is_padding)
    expected = F.normalize(masked_mean(encoded, is_padding), dim=1)
    assert torch.allclose(tower(rows), expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["attention", "tanh-attention", "last", "mean"])
def test_bilstm_equals_one_sentence_at_a_time(pooling: Any) -> None:
    torch.manual_seed(0)
    config = BilstmAttentionSettings(word_dimensions=5, dropout=0.0, max_words=4, pooling=pooling)
    tower = BilstmAttentionTower(config, Sizes(dimensions=7), VOCABULARY).eval()
    rows = tower.prepare(TextInput(texts=TEXTS))
    together = tower(rows)
    for n in range(len(TEXTS)):
        words = torch.from_numpy(rows.words[rows.sentences.rows(n)].astype(np.int64))
        states = tower.lstm(tower.embedding(words))[0]
        if pooling == "last":
            pooled = torch.cat([states[-1, :5], states[0, 5:]])
        else:
            weights = torch.full((len(words), 1), 1 / len(words))
            if tower.query is not None and tower.key is not None:
                keys = states @ tower.key.weight.T
                if pooling == "tanh-attention":
                    keys = torch.tanh(keys + tower.key.bias)
                weights = (keys @ tower.query.weight.T / 10**0.5).softmax(0)
            pooled = (weights * states).sum(0)
        one = tower.affine(pooled / (1 + 1e-5) ** 0.5)  # running moments are 0 and 1
        assert torch.allclose(together[n], one / one.norm(), atol=1e-5)


@pytest.mark.parametrize("layers", [2, 0])
@pytest.mark.parametrize("concepts", [True, False])
def test_regions_equal_one_image_at_a_time(concepts: bool, layers: int) -> None:
    tower = region_tower(concepts=concepts, layers=layers)
    bank = regions([3, 1, 0, 3, 4])
    together = tower(tower.prepare(images(bank)))
    for image in range(5):
        vectors = torch.from_numpy(bank.vectors[bank.images.rows(image)].astype(np.float32))
        labels = bank.labels[bank.images.rows(image)]
        if not len(vectors):
            vectors, labels = torch.zeros((1, 5)), ("",)
        segments = tower.segment_norm(tower.segment.weight)
        tokens = (tower.region_norm(tower.region(vectors)) + segments[0]) / 2
        if tower.concepts is not None:
            numbers = [[VOCABULARY.numbers.get(word, 1) for word in label.split()] or [1] for label in labels]
            embedding = tower.concepts.embedding.weight
            means = torch.stack([embedding[row].mean(0) for row in numbers])
            concept = (tower.concepts.norm(tower.concepts.project(means)) + segments[1]) / 2
            tokens = torch.cat([tokens, concept])
        if tower.transformer is not None:
            no_padding = torch.zeros((1, len(tokens)), dtype=torch.bool)
            pooled = padded_transformer(tower.transformer, tokens[None], no_padding)[0].mean(0)
        else:
            pooled = (tower.score(tokens).softmax(0) * tokens).sum(0)
        assert torch.allclose(together[image], pooled / pooled.norm(), atol=1e-5)


def test_the_most_certain_regions_are_read() -> None:
    bank = regions([6, 2])
    rows = region_tower(concepts=True, layers=2, most=4).prepare(images(bank))
    best = np.sort(np.argsort(-bank.scores[:6], kind="stable")[:4])
    assert rows.regions.tolist() == [*best, 6, 7]
    assert rows.images.offsets.tolist() == [0, 4, 6]


def test_labels_and_sentences_share_word_vectors_and_projection() -> None:
    text = transformer_tower()
    tower = region_tower(concepts=True, layers=1, most=9, text=text)
    bank = regions([3])
    (tower(tower.prepare(images(bank))) * torch.arange(8)).sum().backward()
    assert text.embedding.weight.grad is not None and text.embedding.weight.grad[2:6].abs().sum() > 0
    assert tower.concepts is not None and tower.concepts.project is text.project


def test_tokens_are_dropped_in_training_alone() -> None:
    tower = transformer_tower(dropout=0.5)
    rows = tower.prepare(TextInput(texts=TEXTS))
    found = []
    for _ in range(2):
        torch.manual_seed(7)
        found.append(tower(rows))
    assert torch.equal(*found)
    assert not torch.allclose(found[0], tower.eval()(rows), atol=1e-2)
