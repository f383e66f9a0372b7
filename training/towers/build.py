"""Which tower a configuration names.

A new one is a module here, a dataclass in `training.config`, and a line below; or one of another package, whose
settings name its class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import cast

from schemas.errors import ConfigError
from training.config import TowerConfig, TrainConfig
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
    text = _tower(TEXT_TOWERS, config.text)(config.text, sizes, vocabulary)
    return text, _tower(IMAGE_TOWERS, config.image)(config.image, sizes, text)


def _tower(known: Mapping[str, Callable[..., Tower]], config: TowerConfig) -> Callable[..., Tower]:
    if config.name in known:
        return known[config.name]
    where = getattr(config, "tower", "")
    try:
        return cast(Callable[..., Tower], resolve_name(where))
    except (ImportError, AttributeError, ValueError) as problem:
        raise ConfigError(f"{config.part}.name = '{config.name}': its tower {where!r}: {problem}") from problem
