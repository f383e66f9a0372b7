import numpy as np
import pytest
import torch

from schemas.errors import ConfigError, UsageError
from training.config import TrainConfig
from training.data.ragged import Ragged
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, TextInput, Tower, VectorRows
from training.towers.recurrence import GruSettings, GruTower, time_steps
from training.towers.region_concept import RegionConceptSettings
from training.towers.vectors import (
    ImageVectorTower,
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


def test_wrong_vectors_are_refused() -> None:
    with pytest.raises(UsageError, match="vectors of 6 numbers"):
        sentence_tower().prepare(TextInput(texts=["a"], vectors=np.zeros((1, 5))))
    with pytest.raises(UsageError, match="each of 2 sentences"):
        sentence_tower().prepare(TextInput(texts=["a", "b"], vectors=np.zeros((1, 6))))
    with pytest.raises(UsageError, match="have none"):
        sentence_tower().prepare(TextInput(texts=["a"]))


def build(config: TrainConfig, sizes: Sizes, vocabulary: Vocabulary | None) -> tuple[Tower, Tower]:
    text = config.text.build(sizes, vocabulary)
    return text, config.image.build(sizes, text)


def test_images_are_standardised_where_that_is_set() -> None:
    for standardise in (False, True):
        config = TrainConfig(image=LinearSettings(standardise=standardise))
        text, image = build(config, Sizes(dimensions=8, image=4), VOCABULARY)
        assert isinstance(text, GruTower) and isinstance(image, ImageVectorTower)
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
