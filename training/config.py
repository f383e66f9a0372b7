"""Settings of a training run: one frozen dataclass a part, imported by everything and importing no framework.

`TrainConfig` is what `multilink train --set key=value` addresses; named complete runs are in `recipes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from schemas.configs import require
from schemas.documents import Role


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
    SUPERVISED = "supervised"


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
    """Text towers (SPEC 6)."""

    GRU = "gru"
    TRANSFORMER = "transformer"
    BILSTM_ATTENTION = "bilstm-attention"
    SUBWORD_ATTENTION = "subword-attention"
    MULTI_SOURCE = "multi-source"
    SENTENCE = "sentence"


class ImageEncoder(StrEnum):
    """Image towers (SPEC 6)."""

    LINEAR = "linear"
    LINEAR_BN = "linear-bn"
    REGION_CONCEPT = "region-concept"
    FINE_TUNED = "fine-tuned"


class Schedule(StrEnum):
    """How the learning rate falls: on a plateau of the validation loss (H, L), every few epochs (N), never (A)."""

    PLATEAU = "plateau"
    STEPS = "steps"
    CONSTANT = "constant"


class Cnn(StrEnum):
    """Networks that can be trained end to end; all but the first are torchvision's."""

    EFFICIENTNET_LITE0 = "efficientnet-lite0"
    MOBILENET_V3_SMALL = "mobilenet-v3-small"
    DENSENET169 = "densenet169"
    RESNET50 = "resnet50"
    RESNET152 = "resnet152"


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
    """What is read of a data set; for feature columns, `auto` takes the only one there is.

    Attributes:
        image_features: extractor of the image vectors (not read by the `region-concept` and `fine-tuned` towers).
        sentence_features: extractor of the frozen sentence vectors (read by the `sentence` tower alone).
        region_features: detector of the regions (read by the `region-concept` tower alone).
        roles: sentences of these roles are read, all where empty (N's single source: `caption`). The `multi-source`
            tower reads the roles of `encoder.sources` instead.
    """

    image_features: str = "auto"
    sentence_features: str = "auto"
    region_features: str = "auto"
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require_roles(self.roles, field="data.roles")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The two towers (SPEC 6).

    Attributes:
        text: text tower.
        image: image tower.
        dimensions: size of the joint space (H: 1024).
        dropout: dropout probability (H: 0.4, on each tower's input).
        word_dimensions: size of a word vector (H: 300).
        word_vectors: what word vectors start from: a file (word2vec binary or text, GloVe, fastText `.vec` or `.bin`,
            MUSE), `glove-6b-50d` (packaged), `word2vec` (trained on the training split, A); empty: random in +-0.2.
        aligned_vectors: one-for-all (N 5.2.2): `LANGUAGE=FILE` of aligned word vectors (MUSE) per language; a word is
            looked up in its document's language. Empty: one language.
        train_words: whether word vectors are trained; with `aligned_vectors` they must not be.
        min_word_count: a word seen fewer times in the training split is unknown (H: 5).
        max_words: words of a sentence that are read (H: 20 for crowd-labelled sets, 50 for the others).
        layers: transformer layers of `transformer` and `region-concept` (L: 3).
        heads: attention heads (L: 8; N: 6).
        head_dimensions: size of a head of `subword-attention` (N: 64).
        hidden_dimensions: width of the layer between the two of a feed-forward block (N: 2048; L does not say).
        attention: whether `subword-attention` and `bilstm-attention` have their attention (ablations N table 1, A
            table 3).
        subwords: whether `subword-attention` and `multi-source` read n-grams beside words (ablation N table 1).
        ngrams: shortest and longest n-gram, in characters (N: 3 and 5).
        buckets: rows of the hashed n-gram table (fastText: 2,000,000).
        sources: roles that `multi-source` fuses (N 5.1).
        source_drop: probability that a source is dropped in training; one is always kept (N 6.2: 0.3).
        max_regions: regions of an image that `region-concept` reads, the most certain (L: 36).
        concepts: whether the labels of regions are read, too (ablation L table 3).
        image_transformer: whether regions pass through a transformer; without: softmax pooling (ablation L table 3).
        cnn: network of the `fine-tuned` tower.
        cnn_weights: file of its starting weights (a torch state); empty: those its package holds, or random.
    """

    text: TextEncoder = TextEncoder.GRU
    image: ImageEncoder = ImageEncoder.LINEAR
    dimensions: int = 1024
    dropout: float = 0.4
    word_dimensions: int = 300
    word_vectors: str = ""
    aligned_vectors: tuple[str, ...] = ()
    train_words: bool = True
    min_word_count: int = 5
    max_words: int = 50
    layers: int = 3
    heads: int = 8
    head_dimensions: int = 64
    hidden_dimensions: int = 2048
    attention: bool = True
    subwords: bool = True
    ngrams: tuple[int, ...] = (3, 5)
    buckets: int = 200_000
    sources: tuple[str, ...] = (Role.HEADLINE.value, Role.LEAD.value, Role.CAPTION.value, Role.BODY.value)
    source_drop: float = 0.3
    max_regions: int = 36
    concepts: bool = True
    image_transformer: bool = True
    cnn: Cnn = Cnn.EFFICIENTNET_LITE0
    cnn_weights: str = ""

    def __post_init__(self) -> None:
        for name in ("dropout", "source_drop"):
            value = getattr(self, name)
            require(0 <= value < 1, field=f"encoder.{name}", value=value, rule="must be in [0, 1)")
        for name in _POSITIVE:
            value = getattr(self, name)
            require(value > 0, field=f"encoder.{name}", value=value, rule="must be positive")
        is_range = len(self.ngrams) == 2 and 1 <= self.ngrams[0] <= self.ngrams[1]
        require(is_range, field="encoder.ngrams", value=self.ngrams, rule="expected shortest,longest")
        _require_roles(self.sources, field="encoder.sources")
        require(bool(self.sources), field="encoder.sources", value=self.sources, rule="expected at least one role")
        self._check_heads()
        self._check_languages()

    def _check_heads(self) -> None:
        has_transformer = self.text is TextEncoder.TRANSFORMER or self.image is ImageEncoder.REGION_CONCEPT
        rule = f"a transformer's heads must divide encoder.dimensions = {self.dimensions}"
        fits = not has_transformer or self.dimensions % self.heads == 0
        require(fits, field="encoder.heads", value=self.heads, rule=rule)

    def _check_languages(self) -> None:
        for item in self.aligned_vectors:
            language, _, path = item.partition("=")
            require(bool(language and path), field="encoder.aligned_vectors", value=item, rule="expected LANGUAGE=FILE")
        rule = "aligned word vectors are frozen, else their languages drift apart; set encoder.train_words=false"
        is_frozen = not (self.aligned_vectors and self.train_words)
        require(is_frozen, field="encoder.aligned_vectors", value=self.aligned_vectors, rule=rule)


_POSITIVE = (
    "dimensions",
    "word_dimensions",
    "min_word_count",
    "max_words",
    "layers",
    "heads",
    "head_dimensions",
    "hidden_dimensions",
    "buckets",
    "max_regions",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """What is minimised (SPEC 4 and 5).

    Attributes:
        name: an objective, or a sum of several joined by `+`: `cross-document` (short: `cross`), `intra-document`
            (`intra`), `dropout-subdocument` (`dropout`), `nostruct`; for documents of one text and one image
            `triplet-hardest`, `triplet-sum`, `hal`, `euclidean-batch-hard`, and `coherence`, which is added to one
            of them (`coherence-aware` is `triplet-hardest+coherence`). `supervised` is an upper bound: it alone is
            shown links.
        similarity: of a sentence set and an image set.
        k: how many edges or maxima count: `min` (min(n, m)), `half` (half of it rounded up), a fraction of
            min(n, m) such as `0.25`, or a count such as `5`.
        matching: constraint of AP.
        combine: how DC and TK put rows and columns together.
        loss: what a negative document costs.
        negatives: the hardest negative document, or the mean over all.
        mean_epochs: epochs at the start in which training takes their mean whatever `negatives` says: the hardest
            negative of an untrained model is noise.
        margin: alpha of the hinges (H: 0.2, A: 0.3). Intra-document and dropout sub-document take half of it (L).
        kept_share: p, the share of sentences and images that a dropout sub-document keeps (L: 0.6 for story-dii
            and story-sis, 0.8 for mscoco).
        cosine_scale: NoStruct's document similarity is this times the cosine (paper: 1; H's code: 2).
        hal_alpha: scale of the negatives of `hal` (N eq. 5: 20).
        hal_beta: scale of the positives of `hal` (N: 30).
        hal_epsilon: similarity above which a negative of `hal` costs much (N: 0.2).
        relations: `all`, or the one relation that `coherence` predicts (A's CMCM_c).
        relation_weight: lambda_cls, what `coherence` is multiplied with (A: 0.1).
        labelled_share: share of the training documents whose links `supervised` is shown (L figure 5). A smaller
            share's documents are among a larger one's.
    """

    name: str = ObjectiveName.CROSS_DOCUMENT.value
    similarity: Similarity = Similarity.AP
    k: str = "min"
    matching: Matching = Matching.EXACT
    combine: Combine = Combine.SUM
    loss: Loss = Loss.HINGE
    negatives: Negatives = Negatives.HARDEST
    mean_epochs: int = 0
    margin: float = 0.2
    kept_share: float = 0.6
    cosine_scale: float = 1.0
    hal_alpha: float = 20.0
    hal_beta: float = 30.0
    hal_epsilon: float = 0.2
    relations: str = "all"
    relation_weight: float = 0.1
    labelled_share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("margin", "hal_alpha", "hal_beta", "relation_weight"):
            value = getattr(self, name)
            require(value > 0, field=f"objective.{name}", value=value, rule="must be positive")
        share = self.kept_share
        require(0 < share <= 1, field="objective.kept_share", value=share, rule="must be in (0, 1]")
        epochs = self.mean_epochs
        require(epochs >= 0, field="objective.mean_epochs", value=epochs, rule="must not be negative")
        share = self.labelled_share
        require(0 < share <= 1, field="objective.labelled_share", value=share, rule="must be in (0, 1]")
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
    def reads_links(self) -> bool:
        """Return whether training is shown links: of `labelled_share` of the training documents."""
        return ObjectiveName.SUPERVISED in self.terms

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
        schedule: how the rate falls.
        plateau_epochs: of `plateau`: the rate is divided by `plateau_factor` when the validation loss has not improved
            for more than this many epochs (H: 3 and 5).
        plateau_factor: see above.
        step_epochs: of `steps`: the rate is divided by `step_factor` after each so many epochs (N: 10 and 5).
        step_factor: see above.
        warmup_steps: steps over which the rate first rises linearly from `warmup_from` (L: 3000 or 4000); 0: none.
        warmup_from: see above (L: 1e-7).
        start_from: trained models whose weights the run starts from: one `MODEL`, or `ROLE=MODEL` for each source of
            `multi-source`. A model is a folder, `models:/NAME/VERSION`, `models:/NAME@ALIAS` or `runs:/RUN/model`.
        start_words: whether word vectors are taken over, too, word by word; else they start from
            `encoder.word_vectors` (N 5.2.3, all-for-one: another language's). New words always do.
        frozen_epochs: epochs at the start in which weights from `start_from` stay as they are (N 6.2: 1).
        max_rows: at most this many random sentences and images of a document take part in a step (H suppl. 2: 10);
            0: all.
        clip_norm: gradient norm above which gradients are scaled down; 0: never.
        select: which epoch is kept.
        seed: of initial weights, batches, dropout and samples.
        precision: of matrix products (autocast).
        device: `auto` takes a GPU where there is one.
    """

    epochs: int = 50
    negative_documents: int = 10
    learning_rate: float = 1e-4
    schedule: Schedule = Schedule.PLATEAU
    plateau_epochs: int = 3
    plateau_factor: float = 5.0
    step_epochs: int = 10
    step_factor: float = 5.0
    warmup_steps: int = 0
    warmup_from: float = 1e-7
    start_from: tuple[str, ...] = ()
    start_words: bool = True
    frozen_epochs: int = 0
    max_rows: int = 0
    clip_norm: float = 0.0
    select: Select = Select.LOSS
    seed: int = 0
    precision: Precision = Precision.FLOAT32
    device: Device = Device.AUTO

    def __post_init__(self) -> None:
        for name in ("epochs", "negative_documents", "step_epochs"):
            value = getattr(self, name)
            require(value >= 1, field=f"training.{name}", value=value, rule="must be at least 1")
        for name in ("learning_rate", "plateau_factor", "step_factor", "warmup_from"):
            value = getattr(self, name)
            require(value > 0, field=f"training.{name}", value=value, rule="must be positive")
        for name in ("plateau_epochs", "warmup_steps", "frozen_epochs", "max_rows", "clip_norm", "seed"):
            value = getattr(self, name)
            require(value >= 0, field=f"training.{name}", value=value, rule="must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """A complete training run, but for the data set and the number of workers.

    Attributes:
        recipe: name of these settings, as the run's tags tell it.
    """

    recipe: str = "hessel-2019"
    data: DataConfig = field(default_factory=DataConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: LoopConfig = field(default_factory=LoopConfig)


def _require_roles(roles: tuple[str, ...], *, field: str) -> None:
    known = [role.value for role in Role]
    rule = f"expected different roles of {', '.join(known)}"
    require(set(roles) <= set(known) and len(set(roles)) == len(roles), field=field, value=roles, rule=rule)


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
