"""Named complete training runs: each a function that returns a full configuration."""

from collections.abc import Callable, Mapping

from schemas.errors import ConfigError
from training.config import EncoderConfig, LoopConfig, ObjectiveConfig, Select, Similarity, TextEncoder, TrainConfig


def tiny() -> TrainConfig:
    """Small data, two cores, half a minute: frozen sentence and CNN vectors, one affine map each, AP.

    The last epoch is kept: over a few dozen validation documents neither loss nor rank is steady enough to choose by.
    """
    return TrainConfig(
        recipe="tiny",
        encoder=EncoderConfig(text=TextEncoder.SENTENCE, dropout=0.2),
        objective=ObjectiveConfig(similarity=Similarity.AP),
        training=LoopConfig(epochs=12, learning_rate=1e-3, select=Select.LAST),
    )


def hessel_2019() -> TrainConfig:
    """Hessel, Lee, Mimno 2019: GRU and affine map, hinge on the hardest of b = 10 negatives, 50 epochs."""
    return TrainConfig(recipe="hessel-2019")


RECIPES: Mapping[str, Callable[[], TrainConfig]] = {"tiny": tiny, "hessel-2019": hessel_2019}


def recipe(name: str) -> TrainConfig:
    """Return the named recipe's configuration.

    Raises:
        ConfigError: there is no recipe of that name.
    """
    if name not in RECIPES:
        raise ConfigError(f"unknown recipe '{name}'; recipes: {', '.join(sorted(RECIPES))}")
    return RECIPES[name]()
