"""Which tower a configuration names. A new one is a module here, a dataclass in `training.config`, and a line below."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from training.config import TrainConfig
from training.text.vocabulary import Vocabulary
from training.towers.bilstm_attention import BilstmAttentionTower
from training.towers.fine_tuned import FineTunedTower
from training.towers.gru import GruTower, SubwordGruTower
from training.towers.inputs import Sizes, Tower
from training.towers.multi_source import MultiSourceTower
from training.towers.region_concept import RegionConceptTower
from training.towers.subword_attention import SubwordAttentionTower
from training.towers.transformer import TransformerTower
from training.towers.vectors import LinearTower, SentenceTower

TEXT_TOWERS: Mapping[str, Callable[..., Tower]] = {
    "gru": GruTower,
    "transformer": TransformerTower,
    "bilstm-attention": BilstmAttentionTower,
    "subword-gru": SubwordGruTower,
    "subword-attention": SubwordAttentionTower,
    "multi-source": MultiSourceTower,
    "sentence": SentenceTower,
}
IMAGE_TOWERS: Mapping[str, Callable[..., Tower]] = {
    "linear": LinearTower,
    "linear-bn": LinearTower,
    "region-concept": RegionConceptTower,
    "fine-tuned": FineTunedTower,
}


def build_towers(config: TrainConfig, sizes: Sizes, vocabulary: Vocabulary | None) -> tuple[Tower, Tower]:
    """Return the text and the image tower a configuration names.

    Raises:
        ConfigError: a tower reads words or vectors that are not given, or its package is not installed.
    """
    text = TEXT_TOWERS[config.text.name](config.text, sizes, vocabulary)
    return text, IMAGE_TOWERS[config.image.name](config.image, sizes, text)
