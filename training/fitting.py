"""What the towers of a configuration read, and one line that says what to do where a data set does not have it.

Asked before anything is read or built. Whether an *objective* fits the documents is the objectives' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.errors import ConfigError, UsageError
from schemas.manifest import Manifest
from training.config import EncoderConfig, ImageEncoder, TextEncoder, TrainConfig
from training.data.documents import SplitIndex
from training.data.roles import TextView

AUTO = "auto"
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


def check_pairs(config: TrainConfig, view: TextView, index: SplitIndex, *, reference: str) -> None:
    """Refuse an objective of pairs where a view of the documents leaves several texts or images in one.

    Raises:
        UsageError: a document has more than one text or image.
    """
    if not config.objective.is_for_pairs:
        return
    for what, counts in (("texts", index.sentence_counts), ("images", index.image_counts)):
        if (most := int(counts.max(initial=0))) > 1:
            read = f"roles {', '.join(view.roles)}" if view.roles else "all roles"
            raise UsageError(
                f"objective.name = '{config.objective.name}' is for documents of one text and one image, {reference} "
                f"has up to {most} {what} ({read}); read one role (--set data.roles=caption), fuse several "
                "(--set encoder.text=multi-source), or use --set objective.name=cross-document"
            )


def shares_concepts(encoder: EncoderConfig) -> bool:
    """Return whether the image tower reads region labels through the text tower's word vectors."""
    return encoder.image is ImageEncoder.REGION_CONCEPT and encoder.concepts


def region_extractors(manifest: Manifest) -> Mapping[str, int]:
    """Return the detectors whose regions a data set version has, with the sizes of their vectors."""
    found: Mapping[str, int] = getattr(manifest, "region_extractors", {})
    return found


def choose_regions(extractors: Mapping[str, int], wanted: str) -> str:
    """Return the detector a setting names; `auto` is the only one there is.

    Raises:
        ConfigError: there is none of that name, none at all, or `auto` has several to choose from.
    """
    known = ", ".join(sorted(extractors)) or "none"
    if not extractors:
        raise ConfigError(
            "encoder.image = 'region-concept': the data set has no regions; build it with a detector, or use "
            "--set encoder.image=linear"
        )
    if wanted == AUTO and len(extractors) > 1:
        raise ConfigError(f"data.region_features = 'auto': the data set has regions of {known}; name one of them")
    if wanted != AUTO and wanted not in extractors:
        raise ConfigError(f"data.region_features = {wanted!r}: the data set has no such regions; it has {known}")
    return next(iter(extractors)) if wanted == AUTO else wanted


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
