"""What an evaluation is set to: `multilink evaluate --set KEY=VALUE`."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.configs import require
from training.evaluation.metrics.relations import DIFFICULT_BELOW, RefineConfig
from training.evaluation.metrics.retrieval import SAMPLE_PAIRS, SAMPLES
from training.text.word_vectors import PACKAGED

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig:
    """What the baselines read (`auto` takes the only column there is), and how retrieval is measured.

    Attributes:
        image_features: image column of `joint-embeddings`.
        sentence_features: sentence column of `joint-embeddings`.
        class_features: classes of `object-detection`.
        word_vectors: of `object-detection`: a vector file or `glove-6b-50d` (packaged).
        word_dimensions: their size.
        seed: of `random`, where it is asked for by name.
        sample_pairs: pairs of a sample of the retrieval pool (Alikhani 2022: 500).
        samples: how many samples are drawn; 0: the whole pool alone.
        distinct_images: an image of several documents is one candidate; otherwise one for each, as a table's rows.
        refine_below: T of the similarity refinement: a text is refined where its two largest similarities differ by
            less (Alikhani 2022: 0.1; their code: 0.05).
        refine_weight: its lambda; 0: 0.12 for clue, 0.13 for others (Alikhani 2022).
    """

    image_features: str = AUTO
    sentence_features: str = AUTO
    class_features: str = AUTO
    word_vectors: str = PACKAGED
    word_dimensions: int = 50
    seed: int = 0
    sample_pairs: int = SAMPLE_PAIRS
    samples: int = SAMPLES
    distinct_images: bool = True
    refine_below: float = DIFFICULT_BELOW
    refine_weight: float = 0.0

    def __post_init__(self) -> None:
        for name in ("word_dimensions", "sample_pairs"):
            value = getattr(self, name)
            require(value > 0, field=name, value=value, rule="must be positive")
        for name in ("seed", "samples", "refine_below", "refine_weight"):
            value = getattr(self, name)
            require(value >= 0, field=name, value=value, rule="must not be negative")

    @property
    def refinement(self) -> RefineConfig:
        return RefineConfig(below=self.refine_below, weight=self.refine_weight)


STANDARD_CONFIG = EvaluateConfig()
