"""Settings of a training run: one frozen dataclass a part, imported by everything and importing no framework.

`TrainConfig` is what `multilink train --set key=value` addresses; named complete runs are in `recipes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from schemas.configs import require


class Similarity(StrEnum):
    """Similarity of a sentence set and an image set (Hessel 2019, 3.2), and Li 2022's of what belongs least together.

    `neg_tk` is a term of the intra-document objective; documents are compared by one of the others.
    """

    DC = "dc"
    TK = "tk"
    NEG_TK = "neg_tk"
    AP = "ap"


class ObjectiveName(StrEnum):
    """What can be minimised, alone or in a sum (SPEC 5)."""

    CROSS_DOCUMENT = "cross-document"
    INTRA_DOCUMENT = "intra-document"
    DROPOUT_SUBDOCUMENT = "dropout-subdocument"
    NOSTRUCT = "nostruct"
    TRIPLET_HARDEST = "triplet-hardest"
    TRIPLET_SUM = "triplet-sum"
    HAL = "hal"
    EUCLIDEAN_BATCH_HARD = "euclidean-batch-hard"
    COHERENCE = "coherence"


PAIR_OBJECTIVES = frozenset(
    {
        ObjectiveName.TRIPLET_HARDEST,
        ObjectiveName.TRIPLET_SUM,
        ObjectiveName.HAL,
        ObjectiveName.EUCLIDEAN_BATCH_HARD,
        ObjectiveName.COHERENCE,
    }
)
SHORT_NAMES = {
    "cross": (ObjectiveName.CROSS_DOCUMENT,),
    "intra": (ObjectiveName.INTRA_DOCUMENT,),
    "dropout": (ObjectiveName.DROPOUT_SUBDOCUMENT,),
    "coherence-aware": (ObjectiveName.TRIPLET_HARDEST, ObjectiveName.COHERENCE),
}


class Loss(StrEnum):
    """What a negative costs, by how much more similar it is than the positive (H's code; the paper: hinge)."""

    HINGE = "hinge"
    LOGISTIC = "logistic"
    SOFTMAX = "softmax"


class Negatives(StrEnum):
    HARDEST = "hardest"
    MEAN = "mean"


class Combine(StrEnum):
    """How row and column means are put together: H sums them, L averages."""

    SUM = "sum"
    MEAN = "mean"


class Matching(StrEnum):
    """AP: `exact` selects exactly k edges (H's code); `at_most` leaves out an edge that would lower the sum."""

    EXACT = "exact"
    AT_MOST = "at_most"


class TextEncoder(StrEnum):
    GRU = "gru"
    SENTENCE = "sentence"


class ImageEncoder(StrEnum):
    LINEAR = "linear"


class Select(StrEnum):
    """Which epoch is kept (SPEC 6)."""

    LOSS = "loss"
    LAST = "last"
    RETRIEVAL = "retrieval"


class Precision(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Device(StrEnum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Which feature columns are read; `auto` takes the only one there is.

    Attributes:
        image_features: extractor of the image vectors.
        sentence_features: extractor of the frozen sentence vectors (used by the `sentence` text encoder).
        region_features: extractor of the images' regions; empty: none are read.
        class_features: extractor of the images' likeliest classes; empty: none are read.
    """

    image_features: str = "auto"
    sentence_features: str = "auto"
    region_features: str = ""
    class_features: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The two towers (SPEC 6).

    Attributes:
        text: text tower.
        image: image tower.
        dimensions: size of the joint space (H: 1024).
        dropout: dropout probability on each tower's input (H: 0.4).
        word_dimensions: size of a word vector (H: 300).
        word_vectors: word2vec, GloVe or fastText text file, or word2vec binary (`*.bin`), to start from; empty:
            random in +-0.2.
        min_word_count: a word seen fewer times in the training split is unknown (H: 5).
        max_words: words of a sentence that are read (H: 20 for crowd-labelled sets, 50 for the others).
    """

    text: TextEncoder = TextEncoder.GRU
    image: ImageEncoder = ImageEncoder.LINEAR
    dimensions: int = 1024
    dropout: float = 0.4
    word_dimensions: int = 300
    word_vectors: str = ""
    min_word_count: int = 5
    max_words: int = 50

    def __post_init__(self) -> None:
        require(self.dimensions > 0, field="encoder.dimensions", value=self.dimensions, rule="must be positive")
        require(0 <= self.dropout < 1, field="encoder.dropout", value=self.dropout, rule="must be in [0, 1)")
        for name in ("word_dimensions", "min_word_count", "max_words"):
            value = getattr(self, name)
            require(value > 0, field=f"encoder.{name}", value=value, rule="must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """What is minimised (SPEC 4 and 5).

    Attributes:
        name: an objective, or a sum of several joined by `+`: `cross-document` (short: `cross`), `intra-document`
            (`intra`), `dropout-subdocument` (`dropout`), `nostruct`; for documents of one text and one image
            `triplet-hardest`, `triplet-sum`, `hal`, `euclidean-batch-hard`, and `coherence`, which is added to one
            of them (`coherence-aware` is `triplet-hardest+coherence`).
        similarity: of a sentence set and an image set.
        k: how many edges or maxima count: `min` (min(n, m)), `half` (half of it rounded up), a fraction of
            min(n, m) such as `0.25`, or a count such as `5`.
        matching: constraint of AP.
        combine: how DC and TK put rows and columns together.
        loss: what a negative document costs.
        negatives: the hardest negative document, or the mean over all.
        margin: alpha of the hinges (H: 0.2, A: 0.3). Intra-document and dropout sub-document take half of it (L).
        kept_share: p, the share of sentences and images that a dropout sub-document keeps (L: 0.6 for story-dii
            and story-sis, 0.8 for mscoco).
        cosine_scale: NoStruct's document similarity is this times the cosine (paper: 1; H's code: 2).
        hal_alpha: scale of the negatives of `hal` (N eq. 5: 20).
        hal_beta: scale of the positives of `hal` (N: 30).
        hal_epsilon: similarity above which a negative of `hal` costs much (N: 0.2).
        relations: `all`, or the one relation that `coherence` predicts (A's CMCM_c).
        relation_weight: lambda_cls, what `coherence` is multiplied with (A: 0.1).
    """

    name: str = ObjectiveName.CROSS_DOCUMENT.value
    similarity: Similarity = Similarity.AP
    k: str = "min"
    matching: Matching = Matching.EXACT
    combine: Combine = Combine.SUM
    loss: Loss = Loss.HINGE
    negatives: Negatives = Negatives.HARDEST
    margin: float = 0.2
    kept_share: float = 0.6
    cosine_scale: float = 1.0
    hal_alpha: float = 20.0
    hal_beta: float = 30.0
    hal_epsilon: float = 0.2
    relations: str = "all"
    relation_weight: float = 0.1

    def __post_init__(self) -> None:
        for name in ("margin", "hal_alpha", "hal_beta", "relation_weight"):
            value = getattr(self, name)
            require(value > 0, field=f"objective.{name}", value=value, rule="must be positive")
        share = self.kept_share
        require(0 < share <= 1, field="objective.kept_share", value=share, rule="must be in (0, 1]")
        require(_is_k(self.k), field="objective.k", value=self.k, rule="expected min, half, a fraction or a count")
        require(
            self.similarity is not Similarity.NEG_TK,
            field="objective.similarity",
            value=str(self.similarity),
            rule="says what belongs least together; documents are compared by dc, tk or ap",
        )
        _check_sum(self.name, self.terms)

    @property
    def terms(self) -> tuple[ObjectiveName, ...]:
        """Return the objectives that the name sums, in the order of `ObjectiveName`."""
        known = {**{str(name): (name,) for name in ObjectiveName}, **SHORT_NAMES}
        parts = self.name.split("+")
        for part in parts:
            rule = f"expected one of {', '.join(known)}, or several joined by +; found {part!r}"
            require(part in known, field="objective.name", value=self.name, rule=rule)
        found = [name for part in parts for name in known[part]]
        require(len(set(found)) == len(found), field="objective.name", value=self.name, rule="sums a term twice")
        return tuple(name for name in ObjectiveName if name in found)

    @property
    def reads_relations(self) -> bool:
        """Return whether training reads the relations of the training split."""
        return ObjectiveName.COHERENCE in self.terms

    @property
    def is_for_pairs(self) -> bool:
        """Return whether every document must be one text and one image."""
        return any(name in PAIR_OBJECTIVES for name in self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """How it is minimised.

    Attributes:
        epochs: passes over the training split.
        negative_documents: `b`; a global batch is b + 1 documents whatever the number of workers.
        learning_rate: Adam's.
        plateau_epochs: the rate is divided by `plateau_factor` when the validation loss has not improved for
            more than this many epochs (H: 3 and 5).
        plateau_factor: see above.
        clip_norm: gradient norm above which gradients are scaled down; 0: never.
        select: which epoch is kept.
        seed: of initial weights, batches, dropout and samples.
        precision: of matrix products (autocast).
        device: `auto` takes a GPU where there is one.
    """

    epochs: int = 50
    negative_documents: int = 10
    learning_rate: float = 1e-4
    plateau_epochs: int = 3
    plateau_factor: float = 5.0
    clip_norm: float = 0.0
    select: Select = Select.LOSS
    seed: int = 0
    precision: Precision = Precision.FLOAT32
    device: Device = Device.AUTO

    def __post_init__(self) -> None:
        for name in ("epochs", "negative_documents"):
            value = getattr(self, name)
            require(value >= 1, field=f"training.{name}", value=value, rule="must be at least 1")
        for name in ("learning_rate", "plateau_factor"):
            value = getattr(self, name)
            require(value > 0, field=f"training.{name}", value=value, rule="must be positive")
        for name in ("plateau_epochs", "clip_norm", "seed"):
            value = getattr(self, name)
            require(value >= 0, field=f"training.{name}", value=value, rule="must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """A complete training run, but for the data set and the number of workers."""

    recipe: str = "hessel-2019"
    data: DataConfig = field(default_factory=DataConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: LoopConfig = field(default_factory=LoopConfig)


def _is_k(text: str) -> bool:
    if text in ("min", "half"):
        return True
    try:
        value = float(text)
    except ValueError:
        return False
    return 0 < value < 1 or (value >= 1 and value == int(value))


def _check_sum(name: str, terms: tuple[ObjectiveName, ...]) -> None:
    rule = "coherence is added to a retrieval objective, as in triplet-hardest+coherence"
    require(terms != (ObjectiveName.COHERENCE,), field="objective.name", value=name, rule=rule)
