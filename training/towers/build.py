"""The two towers of a configuration, built by their settings."""

from schemas.errors import ConfigError
from training.config import TrainConfig
from training.text.vocabulary import Vocabulary
from training.towers.inputs import ImageTowerSettings, Sizes, TextTowerSettings, Tower


def build_towers(config: TrainConfig, sizes: Sizes, vocabulary: Vocabulary | None) -> tuple[Tower, Tower]:
    """Return the text and the image tower with random weights.

    Raises:
        ConfigError: a tower reads words or vectors that are not given, or its package is not installed.
    """
    text = text_settings(config).build(sizes, vocabulary)
    if not isinstance(config.image, ImageTowerSettings):
        raise ConfigError(f"image.name = '{config.image.name}': expected settings on top of ImageTowerSettings")
    return text, config.image.build(sizes, text)


def text_settings(config: TrainConfig) -> TextTowerSettings:
    """Return the settings that build the text tower.

    Raises:
        ConfigError: those of another package build none.
    """
    if not isinstance(config.text, TextTowerSettings):
        raise ConfigError(f"text.name = '{config.text.name}': expected settings on top of TextTowerSettings")
    return config.text
