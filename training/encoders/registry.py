"""Which tower a configuration names. A new encoder is a module of this package and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from schemas.errors import ConfigError
from training.config import EncoderConfig, ImageEncoder, TextEncoder
from training.encoders.gru import GruTower
from training.encoders.linear import LinearMap
from training.encoders.sentence import SentenceTower
from training.text.vocabulary import Vocabulary

TextTower = GruTower | SentenceTower
ImageTower = LinearMap


def _gru(config: EncoderConfig, features: int | None, vocabulary: Vocabulary | None) -> GruTower:
    if vocabulary is None:
        raise ConfigError("encoder.text = 'gru': expected a vocabulary, found none")
    return GruTower(
        vocabulary,
        config.dimensions,
        word_dimensions=config.word_dimensions,
        dropout=config.dropout,
        max_words=config.max_words,
    )


def _sentence(config: EncoderConfig, features: int | None, vocabulary: Vocabulary | None) -> SentenceTower:
    if features is None:
        raise ConfigError("encoder.text = 'sentence': expected a sentence extractor in the data set, found none")
    return SentenceTower(features, config.dimensions, dropout=config.dropout)


def _linear(config: EncoderConfig, features: int) -> LinearMap:
    standardised = config.text is TextEncoder.SENTENCE
    return LinearMap(features, config.dimensions, dropout=config.dropout, standardised=standardised)


TEXT_TOWERS: Mapping[TextEncoder, Callable[[EncoderConfig, int | None, Vocabulary | None], TextTower]] = {
    TextEncoder.GRU: _gru,
    TextEncoder.SENTENCE: _sentence,
}
IMAGE_TOWERS: Mapping[ImageEncoder, Callable[[EncoderConfig, int], ImageTower]] = {ImageEncoder.LINEAR: _linear}


def build_text_tower(config: EncoderConfig, features: int | None, vocabulary: Vocabulary | None) -> TextTower:
    """Return the text tower a configuration names, over sentence vectors of `features` numbers or a vocabulary."""
    return TEXT_TOWERS[config.text](config, features, vocabulary)


def build_image_tower(config: EncoderConfig, features: int) -> ImageTower:
    """Return the image tower a configuration names, over image vectors of `features` numbers."""
    return IMAGE_TOWERS[config.image](config, features)
