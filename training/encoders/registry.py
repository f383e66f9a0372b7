"""Which tower a configuration names. A new encoder is a module of this package and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from schemas.errors import ConfigError
from training.config import EncoderConfig, ImageEncoder, TextEncoder
from training.encoders.bilstm_attention import BilstmAttentionTower
from training.encoders.cnn import build_network
from training.encoders.fine_tuned import FineTunedTower
from training.encoders.gru import GruTower
from training.encoders.linear import LinearBn, LinearMap
from training.encoders.multi_source import MultiSourceTower
from training.encoders.region_concept import RegionConceptTower
from training.encoders.sentence import SentenceTower
from training.encoders.subword_attention import SubwordAttentionTower, SubwordEmbedding, SubwordEncoder
from training.encoders.transformer import TransformerTower
from training.encoders.words import WordTower
from training.text.subwords import Subwords
from training.text.vocabulary import Vocabulary

TextTower = (
    GruTower | TransformerTower | BilstmAttentionTower | SubwordAttentionTower | MultiSourceTower | SentenceTower
)
ImageTower = LinearMap | LinearBn | RegionConceptTower | FineTunedTower


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Sizes of the vectors that towers read; None where a data set or a tower has none.

    Attributes:
        sentence: of a sentence encoder's vector.
        image: of an image extractor's vector.
        region: of a region's vector.
    """

    sentence: int | None = None
    image: int | None = None
    region: int | None = None


def build_towers(
    config: EncoderConfig, features: Features, vocabulary: Vocabulary | None
) -> tuple[TextTower, ImageTower]:
    """Return the text and the image tower a configuration names.

    Raises:
        ConfigError: a tower reads words or vectors that are not given, or its package is not installed.
    """
    text = TEXT_TOWERS[config.text](config, features, vocabulary)
    return text, IMAGE_TOWERS[config.image](config, features, text)


def _gru(config: EncoderConfig, features: Features, vocabulary: Vocabulary | None) -> GruTower:
    return GruTower(
        _words(config, vocabulary),
        config.dimensions,
        word_dimensions=config.word_dimensions,
        dropout=config.dropout,
        max_words=config.max_words,
        is_multilingual=bool(config.aligned_vectors),
    )


def _transformer(config: EncoderConfig, features: Features, vocabulary: Vocabulary | None) -> TransformerTower:
    return TransformerTower(
        _words(config, vocabulary),
        config.dimensions,
        word_dimensions=config.word_dimensions,
        layers=config.layers,
        heads=config.heads,
        hidden=config.hidden_dimensions,
        dropout=config.dropout,
        max_words=config.max_words,
        is_multilingual=bool(config.aligned_vectors),
    )


def _bilstm(config: EncoderConfig, features: Features, vocabulary: Vocabulary | None) -> BilstmAttentionTower:
    return BilstmAttentionTower(
        _words(config, vocabulary),
        config.dimensions,
        word_dimensions=config.word_dimensions,
        dropout=config.dropout,
        max_words=config.max_words,
        has_attention=config.attention,
        is_multilingual=bool(config.aligned_vectors),
    )


def _subword(config: EncoderConfig, features: Features, vocabulary: Vocabulary | None) -> SubwordAttentionTower:
    return SubwordAttentionTower(_subword_embedding(config, vocabulary), _subword_encoder(config))


def _multi_source(config: EncoderConfig, features: Features, vocabulary: Vocabulary | None) -> MultiSourceTower:
    return MultiSourceTower(
        _subword_embedding(config, vocabulary),
        {source: _subword_encoder(config) for source in config.sources},
        config.dimensions,
        head_dimensions=config.head_dimensions,
        source_drop=config.source_drop,
    )


def _sentence(config: EncoderConfig, features: Features, vocabulary: Vocabulary | None) -> SentenceTower:
    if features.sentence is None:
        raise ConfigError("encoder.text = 'sentence': expected a sentence extractor in the data set, found none")
    return SentenceTower(features.sentence, config.dimensions, dropout=config.dropout)


def _linear(config: EncoderConfig, features: Features, text: TextTower) -> LinearMap:
    standardised = config.text is TextEncoder.SENTENCE
    return LinearMap(
        _image_size(config, features), config.dimensions, dropout=config.dropout, standardised=standardised
    )


def _linear_bn(config: EncoderConfig, features: Features, text: TextTower) -> LinearBn:
    return LinearBn(_image_size(config, features), config.dimensions, dropout=config.dropout)


def _region_concept(config: EncoderConfig, features: Features, text: TextTower) -> RegionConceptTower:
    if features.region is None:
        raise ConfigError("encoder.image = 'region-concept': expected regions in the data set, found none")
    if config.concepts and not isinstance(text, WordTower):
        raise ConfigError(f"encoder.text = '{config.text}': it has no word vectors for the labels of regions")
    return RegionConceptTower(
        features.region,
        config.dimensions,
        concepts=text if config.concepts and isinstance(text, WordTower) else None,
        layers=config.layers if config.image_transformer else 0,
        heads=config.heads,
        hidden=config.hidden_dimensions,
        dropout=config.dropout,
        max_regions=config.max_regions,
    )


def _fine_tuned(config: EncoderConfig, features: Features, text: TextTower) -> FineTunedTower:
    return FineTunedTower(build_network(config.cnn), config.dimensions, dropout=config.dropout)


TEXT_TOWERS: Mapping[TextEncoder, Callable[[EncoderConfig, Features, Vocabulary | None], TextTower]] = {
    TextEncoder.GRU: _gru,
    TextEncoder.TRANSFORMER: _transformer,
    TextEncoder.BILSTM_ATTENTION: _bilstm,
    TextEncoder.SUBWORD_ATTENTION: _subword,
    TextEncoder.MULTI_SOURCE: _multi_source,
    TextEncoder.SENTENCE: _sentence,
}
IMAGE_TOWERS: Mapping[ImageEncoder, Callable[[EncoderConfig, Features, TextTower], ImageTower]] = {
    ImageEncoder.LINEAR: _linear,
    ImageEncoder.LINEAR_BN: _linear_bn,
    ImageEncoder.REGION_CONCEPT: _region_concept,
    ImageEncoder.FINE_TUNED: _fine_tuned,
}


def _words(config: EncoderConfig, vocabulary: Vocabulary | None) -> Vocabulary:
    if vocabulary is None:
        raise ConfigError(f"encoder.text = '{config.text}': expected a vocabulary, found none")
    return vocabulary


def _image_size(config: EncoderConfig, features: Features) -> int:
    if features.image is None:
        raise ConfigError(f"encoder.image = '{config.image}': expected an image extractor in the data set, found none")
    return features.image


def _subword_embedding(config: EncoderConfig, vocabulary: Vocabulary | None) -> SubwordEmbedding:
    shortest, longest = config.ngrams
    subwords = Subwords(shortest=shortest, longest=longest, buckets=config.buckets) if config.subwords else None
    return SubwordEmbedding(
        _words(config, vocabulary),
        subwords,
        config.word_dimensions,
        max_words=config.max_words,
        is_multilingual=bool(config.aligned_vectors),
    )


def _subword_encoder(config: EncoderConfig) -> SubwordEncoder:
    return SubwordEncoder(
        config.word_dimensions,
        config.dimensions,
        heads=config.heads,
        head_dimensions=config.head_dimensions,
        hidden=config.hidden_dimensions,
        dropout=config.dropout,
        has_attention=config.attention,
    )
