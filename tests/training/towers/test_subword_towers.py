import numpy as np
import pytest
import torch
from torch.nn import functional as F

from schemas.errors import UsageError
from training.text.vocabulary import Subwords, Vocabulary
from training.towers.inputs import Sizes, TextInput
from training.towers.multi_source import (
    MultiSourceSettings,
    MultiSourceTower,
    SubwordAttentionSettings,
    SubwordAttentionTower,
    drop_sources,
)
from training.towers.packing import SelfAttention
from training.towers.recurrence import SubwordGruSettings
from training.towers.subwords import SubwordEmbedding

VOCABULARY = Vocabulary(("<pad>", "<unk>", "gotthard", "tunnel", "im"))
SUBWORDS = Subwords(shortest=3, longest=5, buckets=50)
TEXTS = ["im Gotthard", "", "Gotthardtunnel im Tunnel", "a", "tunnel tunnel tunnel"]
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
    built = kind(**(CONFIG | settings)).build(Sizes(dimensions=8), VOCABULARY)  # type: ignore[arg-type]
    return built.eval()


def word_vector(embedding: SubwordEmbedding, word: str) -> torch.Tensor:
    rows = [VOCABULARY.numbers[word]] if word in VOCABULARY.numbers else []
    if embedding.subwords is not None:
        rows += [len(VOCABULARY) + bucket for bucket in SUBWORDS.of(word)] if word else []
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
    together = built(built.prepare(TextInput(texts=TEXTS)))
    for row, text in enumerate(TEXTS):
        x = torch.stack([word_vector(built.embedding, word) for word in text.lower().split() or [""]])
        if built.encoder.attention is not None:
            x = attention(built.encoder.attention, x) + x
        expected = built.encoder.narrow(F.relu(built.encoder.widen(x))).amax(dim=0)
        assert torch.allclose(together[row], expected / expected.norm(), atol=1e-5)


def test_an_unknown_compound_is_near_its_parts_by_its_ngrams() -> None:
    embedding = SubwordEmbedding(SubwordAttentionSettings(buckets=50), Sizes(dimensions=8), VOCABULARY)
    torch.manual_seed(0)
    embedding.table.weight.data.normal_()
    whole, part, other = (word_vector(embedding, word) for word in ("gotthardtunnels", "tunnel", "im"))
    assert F.cosine_similarity(whole, part, dim=0) > F.cosine_similarity(whole, other, dim=0) + 0.1


def test_taking_rows_is_encoding_those_texts() -> None:
    built = tower()
    rows = built.prepare(TextInput(texts=TEXTS))
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
    built = config.build(Sizes(dimensions=8), VOCABULARY)
    together = built.eval()(built.prepare(TextInput(texts=TEXTS)))
    for row, text in enumerate(TEXTS):
        x = torch.stack([word_vector(built.embedding, word) for word in text.lower().split() or [""]])
        last = built.gru(x)[1][0]
        assert torch.allclose(together[row], last / last.norm(), atol=1e-6)
    assert built(built.prepare(TextInput(texts=[]))).shape == (0, 8)
