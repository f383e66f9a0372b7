"""Towers of words and of vectors against torch's own modules, one sentence at a time."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from schemas.messages import ConfigError, UsageError
from training.config import TrainConfig
from training.data.ragged import Ragged
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, TextInput, Tower, VectorRows
from training.towers.recurrence import GruSettings, GruTower, dropped_states, last_states, sentence_states, time_steps
from training.towers.region_concept import RegionConceptSettings
from training.towers.vectors import (
    LinearSettings,
    SentenceSettings,
    SentenceTower,
    Standardise,
    VectorTower,
    moments,
)
from training.towers.words import WordRows

VOCABULARY = Vocabulary(("<pad>", "<unk>", *(f"w{i}" for i in range(20))))
TEXTS = ["w1 w2 w3", "", "w4", "w5 w6 w7 w8 w9 w1", "nothing known", "w2 w3"]


def gru_tower() -> GruTower:
    torch.manual_seed(0)
    return GruTower(GruSettings(word_dimensions=5, dropout=0.0, max_words=4), Sizes(dimensions=7), VOCABULARY).eval()


def sentence_tower() -> SentenceTower:
    return SentenceTower(SentenceSettings(dropout=0.0), Sizes(dimensions=7, sentence=6))


def test_gru_equals_one_sentence_at_a_time() -> None:
    tower = gru_tower()
    rows = tower.prepare(TextInput(texts=TEXTS))
    together = tower(rows)
    for number in range(len(TEXTS)):
        words = torch.from_numpy(rows.words[rows.sentences.rows(number)].astype(np.int64))
        last = tower.gru(tower.embedding(words))[1][0]
        assert torch.allclose(together[number], last / last.norm(), atol=1e-6)


def test_packing_lays_words_out_step_by_step() -> None:
    rows = WordRows(np.array([10, 11, 20, 30, 31, 32], np.int32), Ragged.of([2, 1, 3]))
    order, positions, batch_sizes = time_steps(rows.sentences)
    words = rows.words[positions]
    assert order.tolist() == [2, 0, 1]
    assert words.tolist() == [30, 10, 20, 31, 11, 32]
    assert batch_sizes.tolist() == [3, 2, 1]


def test_sentences_are_cut_at_max_words() -> None:
    tower = gru_tower()
    long, cut = tower(tower.prepare(TextInput(texts=["w1 w2 w3 w4 w5", "w1 w2 w3 w4"])))
    assert torch.allclose(long, cut)


def test_taking_rows_is_encoding_those_sentences() -> None:
    tower = gru_tower()
    rows = tower.prepare(TextInput(texts=TEXTS))
    chosen = np.array([3, 0, 3])
    assert torch.allclose(tower(rows.take(chosen)), tower(rows)[chosen], atol=1e-6)


@pytest.mark.parametrize("tower", [gru_tower(), sentence_tower()])
def test_vectors_are_unit_and_none_is_fine(tower: GruTower | SentenceTower) -> None:
    vectors = np.random.default_rng(0).normal(size=(len(TEXTS), 6)).astype(np.float16)
    rows = tower.prepare(TextInput(texts=TEXTS, vectors=vectors))
    assert torch.allclose(tower(rows).norm(dim=1), torch.ones(len(TEXTS)))
    assert tower(rows).dtype == torch.float32
    assert tower(rows.take(np.array([], np.int64))).shape == (0, 7)


def test_sentence_tower_standardises_then_maps() -> None:
    vectors = np.random.default_rng(0).normal(3, 2, size=(50, 6))
    tower = sentence_tower()
    tower.standardise.set_moments(moments(vectors))
    expected = (vectors - vectors.mean(axis=0)) / vectors.std(axis=0) @ tower.affine.weight.detach().numpy().T
    expected = expected + tower.affine.bias.detach().numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(
        tower(tower.prepare(TextInput(texts=[""] * 50, vectors=vectors))).detach().numpy(), expected, atol=1e-5
    )


def test_moments_count_occurrences() -> None:
    vectors = np.random.default_rng(0).normal(size=(4, 3))
    occurrences = np.array([1, 0, 3, 2])
    found, expected = moments(vectors, occurrences), moments(np.repeat(vectors, occurrences, axis=0))
    assert found[0] == expected[0] == 6
    assert np.allclose(found, expected)


def test_constant_features_are_centred_not_blown_up() -> None:
    layer = Standardise(2)
    layer.set_moments(moments(np.array([[5.0, 1.0], [5.0, 3.0]])))
    assert layer(torch.tensor([[5.0, 1.0]])).tolist() == [[0.0, -1.0]]


def test_dropout_works_on_the_input_in_training_alone() -> None:
    tower = VectorTower(50, 8, dropout=0.5)
    rows = VectorRows(np.ones((3, 50), np.float32))
    assert not torch.equal(tower(rows), tower(rows))
    assert torch.equal(tower.eval()(rows), tower(rows))


@pytest.mark.parametrize(
    ("texts", "vectors", "words"),
    [
        (["a"], np.zeros((1, 5)), "vectors of 6 numbers"),
        (["a", "b"], np.zeros((1, 6)), "each of 2 sentences"),
        (["a"], None, "have none"),
    ],
)
def test_wrong_vectors_are_refused(texts: list[str], vectors: np.ndarray | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sentence_tower().prepare(TextInput(texts=texts, vectors=vectors))


def build(config: TrainConfig, sizes: Sizes, vocabulary: Vocabulary | None) -> tuple[Tower, Tower]:
    text = config.text.build(sizes, vocabulary)
    return text, config.image.build(sizes, text)


def test_images_are_standardised_where_that_is_set() -> None:
    for standardise in (False, True):
        config = TrainConfig(image=LinearSettings(standardise=standardise))
        _, image = build(config, Sizes(dimensions=8, image=4), VOCABULARY)
        assert (image.standardise is not None) == standardise


def test_what_a_tower_reads_must_be_there() -> None:
    for config, words, sizes, message in (
        (TrainConfig(), None, Sizes(dimensions=8, image=4), "expected a vocabulary"),
        (TrainConfig(text=SentenceSettings()), None, Sizes(dimensions=8, image=4), "sentence extractor"),
        (TrainConfig(), VOCABULARY, Sizes(dimensions=8), "image extractor"),
        (TrainConfig(image=RegionConceptSettings()), VOCABULARY, Sizes(dimensions=8, image=4), "expected regions"),
    ):
        with pytest.raises(ConfigError, match=message):
            build(config, sizes, words)


SIZES = [np.array([7, 6, 6, 3, 1]), np.array([3]), np.array([1, 1, 1, 1]), np.array([2, 2])]


def gru_and_inputs(batch_sizes: np.ndarray, dtype: torch.dtype) -> tuple[nn.GRU, torch.Tensor]:
    torch.manual_seed(0)
    return nn.GRU(5, 4).to(dtype), torch.randn(int(batch_sizes.sum()), 5, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("batch_sizes", SIZES, ids=["many", "one word", "one sentence", "equal"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_states_and_gradients_are_those_of_torch(batch_sizes: np.ndarray, dtype: torch.dtype, tolerance: float) -> None:
    gru, inputs = gru_and_inputs(batch_sizes, dtype)
    expected = gru(PackedSequence(inputs, torch.from_numpy(batch_sizes)))[1][0]
    found = last_states(gru, inputs, batch_sizes)
    assert torch.allclose(found, expected, atol=tolerance)
    weights = torch.randn_like(expected)
    wanted = [inputs, *gru.parameters()]
    expected_gradients = torch.autograd.grad((expected * weights).sum(), wanted)
    found_gradients = torch.autograd.grad((found * weights).sum(), wanted)
    for one, other in zip(found_gradients, expected_gradients, strict=True):
        assert torch.allclose(one, other, atol=tolerance)


def test_inputs_without_gradient_and_no_gradient_at_all() -> None:
    gru, inputs = gru_and_inputs(SIZES[0], torch.float32)
    found = last_states(gru, inputs.detach(), SIZES[0])
    found.sum().backward()
    assert all(parameter.grad is not None for parameter in gru.parameters())
    with torch.inference_mode():
        assert torch.equal(last_states(gru, inputs, SIZES[0]), found)


def test_autocast_computes_in_bfloat16_and_trains_float32_weights() -> None:
    gru, inputs = gru_and_inputs(SIZES[0], torch.float32)
    exact = last_states(gru, inputs, SIZES[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = last_states(gru, inputs, SIZES[0])
    assert rounded.dtype is torch.float32
    assert 0 < float((rounded - exact).detach().abs().max()) < 0.02
    expected = torch.autograd.grad(exact.sum(), list(gru.parameters()))
    found = torch.autograd.grad(rounded.sum(), list(gru.parameters()))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is torch.float32
        assert torch.allclose(one, other, atol=0.05, rtol=0.05)


def test_recurrent_dropout_is_a_loop_over_cells_that_see_the_masked_state() -> None:
    gru, inputs = gru_and_inputs(SIZES[0], torch.float64)
    kept = (torch.rand(7, 4) > 0.4).double() / 0.6
    found = dropped_states(gru, inputs, SIZES[0], kept)
    parts, cell = inputs.split(SIZES[0].tolist()), gru_cell(gru)
    for sentence in range(7):
        state = torch.zeros(1, 4, dtype=torch.float64)
        for words in (part for part in parts if sentence < len(part)):
            seen = cell(words[sentence : sentence + 1], state * kept[sentence])
            update = torch.sigmoid(
                words[sentence] @ gru.weight_ih_l0[4:8].T
                + gru.bias_ih_l0[4:8]
                + (state * kept[sentence]) @ gru.weight_hh_l0[4:8].T
                + gru.bias_hh_l0[4:8]
            )
            state = seen + update * (state - state * kept[sentence])  # Keras passes the whole state on
        assert torch.allclose(found[sentence], state[0])
    whole = dropped_states(gru, inputs, SIZES[0], torch.ones(7, 4, dtype=torch.float64))
    assert torch.allclose(whole, gru(PackedSequence(inputs, torch.from_numpy(SIZES[0])))[1][0])


def gru_cell(gru: nn.GRU) -> nn.GRUCell:
    cell = nn.GRUCell(5, 4).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in gru.state_dict().items()})
    return cell


def test_the_tower_drops_from_the_state_in_training_alone() -> None:
    torch.manual_seed(0)
    gru, dropout, recurrent = nn.GRU(5, 4), nn.Dropout(0.0), nn.Dropout(0.5)
    words, sentences = torch.randn(9, 5), Ragged.of(np.array([4, 2, 3]))

    def states() -> torch.Tensor:
        return sentence_states(gru, dropout, sentences, lambda at: words[at], recurrent)

    torch.manual_seed(7)
    dropped = states()
    torch.manual_seed(7)
    assert torch.equal(states(), dropped)
    recurrent.eval()
    whole = states()
    assert not torch.allclose(whole, dropped, atol=1e-3)
    expected = [gru(words[sentences.rows(row)])[1][0] for row in range(3)]
    assert torch.allclose(whole, torch.stack(expected), atol=1e-5)
