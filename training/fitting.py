"""What the towers of a configuration read, and one line that says what to do where a data set does not have it.

Asked before anything is read or built. Whether an *objective* fits the documents is the objectives' business.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import ConfigError
from training.config import EncoderConfig, ImageEncoder, TextEncoder, TrainConfig

READS_WORDS = frozenset(TextEncoder) - {TextEncoder.SENTENCE}
SHARES_WORDS = frozenset({TextEncoder.GRU, TextEncoder.TRANSFORMER, TextEncoder.BILSTM_ATTENTION})


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What is read of a data set beside the documents' texts.

    Attributes:
        image_vectors: one vector an image.
        regions: detected regions of the images.
        jpegs: the pictures themselves.
        sentence_vectors: one vector a sentence.
    """

    image_vectors: bool
    regions: bool
    jpegs: bool
    sentence_vectors: bool


def inputs_of(config: TrainConfig) -> Inputs:
    """Return what the towers of a configuration read.

    Raises:
        ConfigError: the two towers, or the tower and the roles, do not fit together.
    """
    encoder = config.encoder
    _check_towers(encoder)
    if config.data.roles and encoder.text is TextEncoder.MULTI_SOURCE:
        raise ConfigError(
            f"data.roles = {config.data.roles!r}: the multi-source tower reads the roles of encoder.sources; "
            "leave data.roles empty"
        )
    return Inputs(
        image_vectors=encoder.image in (ImageEncoder.LINEAR, ImageEncoder.LINEAR_BN),
        regions=encoder.image is ImageEncoder.REGION_CONCEPT,
        jpegs=encoder.image is ImageEncoder.FINE_TUNED,
        sentence_vectors=encoder.text is TextEncoder.SENTENCE,
    )


def shares_concepts(encoder: EncoderConfig) -> bool:
    """Return whether the image tower reads region labels through the text tower's word vectors."""
    return encoder.image is ImageEncoder.REGION_CONCEPT and encoder.concepts


def _check_towers(encoder: EncoderConfig) -> None:
    if not shares_concepts(encoder):
        return
    if encoder.text not in SHARES_WORDS:
        usable = ", ".join(sorted(SHARES_WORDS))
        raise ConfigError(
            f"encoder.text = '{encoder.text}': region labels are read through the text tower's word vectors, and it "
            f"has none to share; use one of {usable}, or --set encoder.concepts=false"
        )
    if encoder.aligned_vectors:
        raise ConfigError(
            "encoder.concepts = True: region labels have one language, the word vectors several; "
            "use --set encoder.concepts=false"
        )
