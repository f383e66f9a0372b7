"""Each tower against a slow, padded or one-at-a-time computation of the same mathematics from torch's own modules."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.messages import UsageError
from training.data.documents import RegionBank
from training.data.ragged import Ragged
from training.text.vocabulary import Subwords, Vocabulary
from training.towers.inputs import (
    ImageInput,
    Packing,
    SelfAttention,
    Sizes,
    TextInput,
    attend,
    blocks,
    largest_of,
    mean_of,
    pool,
    softmax_pool,
)
from training.towers.multi_source import (
    MultiSourceSettings,
    MultiSourceTower,
    SubwordAttentionSettings,
    SubwordAttentionTower,
    drop_sources,
)
from training.towers.recurrence import BilstmAttentionSettings, BilstmAttentionTower, SubwordGruSettings
from training.towers.region_concept import (
    RegionConceptSettings,
    RegionConceptTower,
    Transformer,
    TransformerLayer,
    TransformerSettings,
    TransformerTower,
)
from training.towers.words import SubwordEmbedding

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
    (tower(tower.prepare(images(regions([3])))) * torch.arange(8)).sum().backward()
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


GERMAN = Vocabulary(("<pad>", "<unk>", "gotthard", "tunnel", "im"))
SUBWORDS = Subwords(shortest=3, longest=5, buckets=50)
COMPOUNDS = ["im Gotthard", "", "Gotthardtunnel im Tunnel", "a", "tunnel tunnel tunnel"]
CONFIG = {
    "word_dimensions": 6,
    "heads": 2,
    "head_dimensions": 3,
    "hidden_dimensions": 10,
    "buckets": 50,
    "dropout": 0.0,
    "max_words": 9,
}


def tower(
    kind: type[SubwordAttentionSettings] = SubwordAttentionSettings, **settings: object
) -> SubwordAttentionTower | MultiSourceTower:
    torch.manual_seed(0)
    built = kind(**(CONFIG | settings)).build(Sizes(dimensions=8), GERMAN)  # type: ignore[arg-type]
    return built.eval()


def word_vector(embedding: SubwordEmbedding, word: str) -> torch.Tensor:
    rows = [GERMAN.numbers[word]] if word in GERMAN.numbers else []
    if embedding.subwords is not None:
        rows += [len(GERMAN) + bucket for bucket in SUBWORDS.of(word)] if word else []
    return embedding.table.weight[rows or [1]].mean(dim=0)


def attention(layer: SelfAttention, x: torch.Tensor) -> torch.Tensor:
    """Eq. 2 of the paper, one head after the other."""
    heads = []
    for q, k, v in zip(
        *(part.weight.chunk(layer.heads) for part in (layer.query, layer.key, layer.value)), strict=True
    ):
        weights = ((x @ q.T) @ (x @ k.T).T / q.shape[0] ** 0.5).softmax(dim=-1)
        heads.append(weights @ (x @ v.T))
    mixed = torch.cat(heads, dim=-1)
    return mixed if layer.output is None else mixed @ layer.output.weight.T


@pytest.mark.parametrize("has_attention", [True, False])
@pytest.mark.parametrize("has_subwords", [True, False])
def test_equals_the_paper_one_text_at_a_time(has_attention: bool, has_subwords: bool) -> None:
    built = tower(attention=has_attention, subwords=has_subwords)
    together = built(built.prepare(TextInput(texts=COMPOUNDS)))
    for row, text in enumerate(COMPOUNDS):
        x = torch.stack([word_vector(built.embedding, word) for word in text.lower().split() or [""]])
        if built.encoder.attention is not None:
            x = attention(built.encoder.attention, x) + x
        expected = built.encoder.narrow(F.relu(built.encoder.widen(x))).amax(dim=0)
        assert torch.allclose(together[row], expected / expected.norm(), atol=1e-5)


def test_an_unknown_compound_is_near_its_parts_by_its_ngrams() -> None:
    embedding = SubwordEmbedding(SubwordAttentionSettings(buckets=50), Sizes(dimensions=8), GERMAN)
    torch.manual_seed(0)
    embedding.table.weight.data.normal_()
    whole, part, other = (word_vector(embedding, word) for word in ("gotthardtunnels", "tunnel", "im"))
    assert F.cosine_similarity(whole, part, dim=0) > F.cosine_similarity(whole, other, dim=0) + 0.1


def test_taking_rows_is_encoding_those_texts() -> None:
    built = tower()
    rows = built.prepare(TextInput(texts=COMPOUNDS))
    chosen = np.array([2, 0, 2])
    assert torch.allclose(built(rows.take(chosen)), built(rows)[chosen], atol=1e-6)
    assert built(rows.take(np.array([], np.int64))).shape == (0, 8)


@pytest.mark.parametrize("fuser", ["attention", "max", "add", "neural-net"])
def test_sources_are_fused_as_in_the_paper(fuser: str) -> None:
    built = tower(MultiSourceSettings, sources=("lead", "caption"), fuser=fuser)
    documents = [("im Gotthard", "Tunnel"), ("", "a b c")]
    together = built(built.prepare(TextInput(texts=["", ""], sources=documents)))
    for row, texts in enumerate(documents):
        encoded = []
        for source, text in zip(("lead", "caption"), texts, strict=True):
            encoder = built.encoders[source]
            x = torch.stack([word_vector(built.embedding, word) for word in text.lower().split() or [""]])
            x = attention(encoder.attention, x) + x  # type: ignore[arg-type]
            encoded.append(encoder.narrow(F.relu(encoder.widen(x))).amax(dim=0))  # type: ignore[operator]
        stacked = torch.stack(encoded)
        if fuser in ("max", "add"):
            expected = stacked.max(dim=0).values if fuser == "max" else stacked[0] + stacked[1]
        else:
            if fuser == "attention":
                stacked = attention(built.fuser.attention, stacked)
            expected = built.fuser.second(F.relu(built.fuser.first(stacked.flatten())))
            expected = F.relu(expected) if fuser == "neural-net" else expected
            assert built.fuser.first.weight.shape == (16, 16) and built.fuser.second.weight.shape == (8, 16)
        assert torch.allclose(together[row], expected / expected.norm(), atol=1e-5)


def test_dropped_sources_read_as_empty_texts() -> None:
    built = tower(MultiSourceSettings, sources=("lead", "caption"), source_drop=0.9)
    rows = built.prepare(TextInput(texts=[""] * 20, sources=[("im Gotthard", "Tunnel")] * 20))
    torch.manual_seed(1)
    dropped = drop_sources(rows.is_present, 0.9)
    assert dropped.any() and not dropped.all(axis=1).any()
    expected = [
        tuple("" if gone else text for text, gone in zip(("im Gotthard", "Tunnel"), row, strict=True))
        for row in dropped
    ]
    blank = built(built.prepare(TextInput(texts=[""] * 20, sources=expected)))
    torch.manual_seed(1)
    assert torch.allclose(built.train()(rows), blank, atol=1e-6)
    assert not torch.allclose(built.eval()(rows), blank, atol=1e-3)


def test_one_source_that_a_document_has_is_always_kept() -> None:
    torch.manual_seed(0)
    present = np.array([[True, True, False, True]] * 400)
    dropped = drop_sources(present, 0.3)
    assert (dropped & present).sum(axis=1).max() <= 2  # of three
    assert 0.3 * 2 / 3 - 0.05 < dropped[:, [0, 1, 3]].mean() < 0.3 * 2 / 3 + 0.05
    assert not drop_sources(np.zeros((400, 4), bool), 0.9).all(axis=1).any()


def test_texts_without_roles_are_refused() -> None:
    with pytest.raises(UsageError, match="give each text its role"):
        tower(MultiSourceSettings).prepare(TextInput(texts=["a"]))


def test_a_body_is_read_further_than_other_sources() -> None:
    built = tower(MultiSourceSettings, sources=("caption", "body"), max_words=2, body_words=4)
    words = "tunnel im gotthard im tunnel im gotthard"
    rows = built.prepare(TextInput(texts=[""], sources=[(words, words)]))
    assert [source.sentences.total for source in rows.sources] == [2, 4]  # type: ignore[union-attr]


def test_a_gru_reads_words_with_their_ngrams() -> None:
    torch.manual_seed(0)
    config = SubwordGruSettings(word_dimensions=6, buckets=50, dropout=0.0, max_words=9)
    built = config.build(Sizes(dimensions=8), GERMAN)
    together = built.eval()(built.prepare(TextInput(texts=COMPOUNDS)))
    for row, text in enumerate(COMPOUNDS):
        x = torch.stack([word_vector(built.embedding, word) for word in text.lower().split() or [""]])
        last = built.gru(x)[1][0]
        assert torch.allclose(together[row], last / last.norm(), atol=1e-6)
    assert built(built.prepare(TextInput(texts=[]))).shape == (0, 8)
