"""Settings of a training run: frozen dataclasses, imported by everything and importing no framework.

`TrainConfig` is what `multilink train --set key=value` addresses; named complete runs are in `recipes.py`. There is
one dataclass for each tower and each schedule; `text.name`, `image.name` and `training.schedule.name` choose it.
Objectives are summed and share settings, so they are one dataclass; a setting that no objective of the sum reads does
not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import isfinite
from typing import Any, ClassVar, Literal

from schemas.configs import require
from schemas.documents import Role
from schemas.plugins import OBJECTIVES, TOWERS, load_plugin, plugins


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
    ORDER = "order"
    EUCLIDEAN_BATCH_HARD = "euclidean-batch-hard"
    COHERENCE = "coherence"
    SUPERVISED = "supervised"


PAIR_OBJECTIVES = frozenset(
    {
        ObjectiveName.TRIPLET_HARDEST,
        ObjectiveName.TRIPLET_SUM,
        ObjectiveName.HAL,
        ObjectiveName.ORDER,
        ObjectiveName.EUCLIDEAN_BATCH_HARD,
        ObjectiveName.COHERENCE,
    }
)
PACKAGED, TRAINED = "glove-6b-50d", "word2vec"  # of `text.word_vectors`, beside the path of a file
SHORT_NAMES = {
    "cross": (ObjectiveName.CROSS_DOCUMENT,),
    "intra": (ObjectiveName.INTRA_DOCUMENT,),
    "dropout": (ObjectiveName.DROPOUT_SUBDOCUMENT,),
    "coherence-aware": (ObjectiveName.TRIPLET_HARDEST, ObjectiveName.COHERENCE),
}


_ROWS = frozenset({"margin", "loss", "negatives", "mean_epochs"})
_SETS = _ROWS | {"similarity", "k", "matching", "solver", "combine"}
OBJECTIVE_SETTINGS: Mapping[ObjectiveName, frozenset[str]] = {
    ObjectiveName.CROSS_DOCUMENT: _SETS,
    ObjectiveName.INTRA_DOCUMENT: frozenset({"margin", "k", "combine"}),
    ObjectiveName.DROPOUT_SUBDOCUMENT: _SETS | {"kept_share"},
    ObjectiveName.NOSTRUCT: _ROWS | {"cosine_scale"},
    ObjectiveName.TRIPLET_HARDEST: frozenset({"margin"}),
    ObjectiveName.TRIPLET_SUM: frozenset({"margin"}),
    ObjectiveName.HAL: frozenset({"hal_alpha", "hal_beta", "hal_epsilon"}),
    ObjectiveName.ORDER: frozenset({"margin"}),
    ObjectiveName.EUCLIDEAN_BATCH_HARD: frozenset({"margin"}),
    ObjectiveName.COHERENCE: frozenset({"relations", "relation_weight"}),
    ObjectiveName.SUPERVISED: frozenset({"margin", "labelled_share"}),
}
_ALL_SETTINGS = frozenset[str]({"options"}).union(*OBJECTIVE_SETTINGS.values())


class Loss(StrEnum):
    """What a negative costs, by how much more similar it is than the positive (H's code; the paper: hinge)."""

    HINGE = "hinge"
    LOGISTIC = "logistic"
    SOFTMAX = "softmax"


class Negatives(StrEnum):
    """Which negatives of a document count; `auto`: for `nostruct` alone the mean (H tables 2, 3), else the hardest."""

    AUTO = "auto"
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


class Solver(StrEnum):
    """What solves AP's assignments: the host, or the GPU that holds the matrix by a Triton kernel (experimental)."""

    HOST = "host"
    GPU = "gpu"


Cnn = Literal["efficientnet-lite0", "nasnet-mobile", "mobilenet-v3-small", "densenet169", "resnet50", "resnet152"]


class Select(StrEnum):
    """Which epoch is kept (SPEC 6).

    `retrieval`: the lowest mean rank of a document's own images for its sentences; `median-rank`: the lowest median of
    those ranks (A).
    """

    LOSS = "loss"
    LAST = "last"
    RETRIEVAL = "retrieval"
    MEDIAN_RANK = "median-rank"


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
            tower reads the roles of `text.sources` instead.
    """

    image_features: str = "auto"
    sentence_features: str = "auto"
    region_features: str = "auto"
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require_roles(self.roles, field="data.roles")


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerConfig:
    """Settings that every tower has. Another tower's settings are unknown keys.

    Attributes:
        name: the tower (SPEC 6).
        dropout: dropout probability (H: 0.4, on each tower's input).
    """

    part: ClassVar[str] = "text"
    name: str = ""
    dropout: float = 0.4

    def __post_init__(self) -> None:
        for known in fields(self):
            value, key = getattr(self, known.name), f"{self.part}.{known.name}"
            if isinstance(value, float):
                require(0 <= value < 1, field=key, value=value, rule="must be in [0, 1)")
            if isinstance(value, int):
                is_free = isinstance(value, bool) or known.default == 0
                require(value > 0 or (is_free and value == 0), field=key, value=value, rule="must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsConfig(TowerConfig):
    """Settings of the text towers that read words.

    Attributes:
        word_dimensions: size of a word vector (H: 300).
        word_vectors: what word vectors start from: a file (word2vec binary or text, GloVe, fastText `.vec` or `.bin`,
            MUSE), `glove-6b-50d` (packaged), `word2vec` (trained on the training split, A); empty: random in +-0.2.
        aligned_vectors: one-for-all (N 5.2.2): `LANGUAGE=FILE` of aligned word vectors (MUSE) per language; a word is
            looked up in its document's language. Empty: one language.
        train_words: whether word vectors are trained; with `aligned_vectors` they must not be.
        min_word_count: a word seen fewer times in the training split is unknown (H: 5).
        only_vector_words: whether words without a vector in `text.word_vectors` are unknown, although the vectors are
            trained (N table 4, lines 4.3 and 4.5: the vocabulary of MUSE alone).
        max_words: words of a sentence that are read; 0: 20 of the crowd-labelled sets (mscoco, story-dii, story-sis,
            dii-stress), 50 of the others (H).
    """

    word_dimensions: int = 300
    word_vectors: str = ""
    aligned_vectors: tuple[str, ...] = ()
    train_words: bool = True
    min_word_count: int = 5
    only_vector_words: bool = False
    max_words: int = 0

    def __post_init__(self) -> None:
        TowerConfig.__post_init__(self)
        has_vectors = bool(self.word_vectors) or not self.only_vector_words
        rule = "expected text.word_vectors beside it"
        require(has_vectors, field="text.only_vector_words", value=self.only_vector_words, rule=rule)
        for item in self.aligned_vectors:
            language, _, path = item.partition("=")
            require(bool(language and path), field="text.aligned_vectors", value=item, rule="expected LANGUAGE=FILE")
        rule = "aligned word vectors are frozen, else their languages drift apart; set text.train_words=false"
        is_frozen = not (self.aligned_vectors and self.train_words)
        require(is_frozen, field="text.aligned_vectors", value=self.aligned_vectors, rule=rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class GruConfig(WordsConfig):
    """H 3.1: a GRU over word vectors, its last state.

    Attributes:
        recurrent_dropout: probability that a number of the state is dropped where it enters the next step, the same
            numbers at all steps of a sentence (H's code: 0.4, with `text.dropout=0`); the paper names one dropout.
    """

    name: Literal["gru"] = "gru"
    recurrent_dropout: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig(WordsConfig):
    """L eq. 6-7: word and position vectors, transformer, mean pool.

    Attributes:
        layers: transformer layers (L: 3).
        heads: attention heads (L: 8).
        hidden_dimensions: width of the layer between the two of a feed-forward block (L does not say; N: 2048).
    """

    name: Literal["transformer"] = "transformer"
    layers: int = 3
    heads: int = 8
    hidden_dimensions: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class BilstmAttentionConfig(WordsConfig):
    """A: bidirectional LSTM, attention over its states.

    Attributes:
        pooling: how states become one vector: `attention` (a linear score a state) or `tanh-attention` (the authors'
            code: `u . tanh(W h + b) / sqrt(e)`); without attention (A table 3) `last` (the last state of either
            direction, as in the code) or `mean`.
    """

    name: Literal["bilstm-attention"] = "bilstm-attention"
    pooling: Literal["attention", "tanh-attention", "last", "mean"] = "attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubwordsConfig(WordsConfig):
    """Settings of the text towers that read words with their n-grams.

    Attributes:
        subwords: whether n-grams are read beside words (ablation N table 1).
        ngrams: shortest and longest n-gram, in characters (N: 3 and 5).
        buckets: rows of the hashed n-gram table (fastText: 2,000,000).
    """

    subwords: bool = True
    ngrams: tuple[int, ...] = (3, 5)
    buckets: int = 200_000

    def __post_init__(self) -> None:
        WordsConfig.__post_init__(self)
        is_range = len(self.ngrams) == 2 and 1 <= self.ngrams[0] <= self.ngrams[1]
        require(is_range, field="text.ngrams", value=self.ngrams, rule="expected shortest,longest")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubwordGruConfig(SubwordsConfig):
    """N table 1, line 1.8: a GRU over words with their n-grams."""

    name: Literal["subword-gru"] = "subword-gru"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubwordAttentionConfig(SubwordsConfig):
    """N 4.3: words with their n-grams, self-attention, point-wise layers, max pool.

    Attributes:
        heads: attention heads (N: 6).
        head_dimensions: size of a head (N: 64).
        hidden_dimensions: width between the two point-wise layers (N: 2048).
        attention: whether there is attention (ablation N table 1).
    """

    name: Literal["subword-attention", "multi-source"] = "subword-attention"
    heads: int = 6
    head_dimensions: int = 64
    hidden_dimensions: int = 2048
    attention: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiSourceConfig(SubwordAttentionConfig):
    """N 5.1: a subword encoder for each of several texts of a document, fused to one vector.

    Attributes:
        sources: roles that are fused.
        fuser: `attention`; of N table 2 also `max` (largest value), `add` (sum), `neural-net` (two affine maps, each
            with ReLU).
        body_words: words of a `body` that are read; of other sources `max_words` (N names no limit).
        source_drop: probability that a source is dropped in training; one is always kept (N 6.2: 0.3).
    """

    name: Literal["multi-source"] = "multi-source"
    sources: tuple[str, ...] = (Role.HEADLINE.value, Role.LEAD.value, Role.CAPTION.value, Role.BODY.value)
    fuser: Literal["attention", "max", "add", "neural-net"] = "attention"
    body_words: int = 1000
    source_drop: float = 0.3

    def __post_init__(self) -> None:
        SubwordAttentionConfig.__post_init__(self)
        _require_roles(self.sources, field="text.sources")
        require(bool(self.sources), field="text.sources", value=self.sources, rule="expected at least one role")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceConfig(TowerConfig):
    """An affine map of the frozen vectors of a sentence encoder, standardised on the training split."""

    name: Literal["sentence"] = "sentence"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTowerConfig(TowerConfig):
    """Settings that every image tower has."""

    part: ClassVar[str] = "image"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearConfig(ImageTowerConfig):
    """H 3.1, N 4.2: an affine map of a CNN's vector.

    Attributes:
        standardise: whether vectors are standardised on the training split first.
    """

    name: Literal["linear"] = "linear"
    standardise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearBnConfig(ImageTowerConfig):
    """A: batch norm and an affine map of a CNN's vector."""

    name: Literal["linear-bn"] = "linear-bn"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionConceptConfig(ImageTowerConfig):
    """L eq. 8-10: regions and their labels as tokens of a transformer, mean pool.

    Attributes:
        max_regions: regions of an image that are read, the most certain (L: 36).
        concepts: whether the labels of regions are read, too (ablation L table 3).
        transformer: whether regions pass through a transformer; without: softmax pooling (ablation L table 3).
        layers: transformer layers (L: 3).
        heads: attention heads (L: 8).
        hidden_dimensions: width of the layer between the two of a feed-forward block (L does not say).
    """

    name: Literal["region-concept"] = "region-concept"
    max_regions: int = 36
    concepts: bool = True
    transformer: bool = True
    layers: int = 3
    heads: int = 8
    hidden_dimensions: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTunedConfig(ImageTowerConfig):
    """H suppl. 2: a CNN trained end to end.

    Attributes:
        cnn: the network: packaged, NASNet mobile (H's; of the extractor of that name), or torchvision's.
        weights: file of its starting weights (a torch state); empty: those its package holds, or random.
        batch_norm: whether the CNN's features are batch-normalised before the affine map (A).
    """

    name: Literal["fine-tuned"] = "fine-tuned"
    cnn: Cnn = "efficientnet-lite0"
    weights: str = ""
    batch_norm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherTextTower(TowerConfig):
    """Stands for the text towers of other packages.

    Settings of one are a dataclass on top of `TowerConfig`, or of one above that reads the same: a tower of
    `WordsConfig` is given words, one of `SentenceConfig` sentence vectors. `tower` is its class, as `module:name`.
    """

    plugins: ClassVar[str] = TOWERS
    tower: ClassVar[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherImageTower(ImageTowerConfig):
    """Stands for the image towers of other packages; as `OtherTextTower`, on top of `ImageTowerConfig`."""

    plugins: ClassVar[str] = TOWERS
    tower: ClassVar[str] = ""


TextConfig = (
    GruConfig
    | TransformerConfig
    | BilstmAttentionConfig
    | SubwordAttentionConfig
    | MultiSourceConfig
    | SentenceConfig
    | OtherTextTower
)
ImageConfig = LinearConfig | LinearBnConfig | RegionConceptConfig | FineTunedConfig | OtherImageTower


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """What is minimised (SPEC 4 and 5).

    Attributes:
        name: an objective, or a sum of several joined by `+`: `cross-document` (short: `cross`), `intra-document`
            (`intra`), `dropout-subdocument` (`dropout`), `nostruct`; for documents of one text and one image
            `triplet-hardest`, `triplet-sum`, `hal`, `order` (Vendrov et al. 2016), `euclidean-batch-hard`, and
            `coherence`, which is added to one of them (`coherence-aware` is `triplet-hardest+coherence`). `supervised`
            is an upper bound: it alone is shown links.
        similarity: of a sentence set and an image set.
        k: how many edges or maxima count: `min` (min(n, m)), `half` (half of it rounded up), a fraction of
            min(n, m) such as `0.25`, or a count such as `5`.
        matching: constraint of AP.
        solver: of AP's assignments. `gpu` is experimental: its kernel compiles and is right in Triton's interpreter,
            and has not run on a GPU. It needs a GPU and Triton, which PyTorch's GPU builds have.
        combine: how DC and TK put rows and columns together.
        loss: what a negative document costs.
        negatives: the hardest negative document, or the mean over all; `auto`: for `nostruct` alone the mean (H tables
            2 and 3: hardest negatives collapse there), else the hardest. A configuration holds which of the two it is.
        mean_epochs: epochs at the start in which training takes their mean whatever `negatives` says: the hardest
            negative of an untrained model is noise.
        margin: alpha of the hinges (H: 0.2, A: 0.3, order embeddings: 0.05). Intra-document and dropout sub-document
            take half of it (L).
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
        options: settings of an objective of another package, each as `NAME=NUMBER`.
    """

    name: str = ObjectiveName.CROSS_DOCUMENT.value
    similarity: Similarity = Similarity.AP
    k: str = "min"
    matching: Matching = Matching.EXACT
    solver: Solver = Solver.HOST
    combine: Combine = Combine.SUM
    loss: Loss = Loss.HINGE
    negatives: Negatives = Negatives.AUTO
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
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _take_plain_names(self)
        rule = f"expected NAME=NUMBER, NAME one of {', '.join(self._defaults) or 'none'}"
        for item in self.options:
            name, _, value = item.partition("=")
            is_option = name in self._defaults and _is_number(value)
            require(is_option, field="objective.options", value=item, rule=rule)
        for known in fields(self):
            if known.name in self.unused:
                value, rule = getattr(self, known.name), f"is no setting of objective.name = '{self.name}'"
                require(value == known.default, field=f"objective.{known.name}", value=value, rule=rule)
        positive, shares = ("margin", "hal_alpha", "hal_beta", "relation_weight"), ("kept_share", "labelled_share")
        _check_numbers(self, "objective", positive=positive, not_negative=["mean_epochs"], shares=shares)
        require(_is_k(self.k), field="objective.k", value=self.k, rule="expected min, half, a fraction or a count")
        require(
            self.similarity is not Similarity.NEG_TK,
            field="objective.similarity",
            value=str(self.similarity),
            rule="says what belongs least together; documents are compared by dc, tk or ap",
        )
        rule = "coherence is added to a retrieval objective, as in triplet-hardest+coherence"
        require(self.terms != (ObjectiveName.COHERENCE,), field="objective.name", value=self.name, rule=rule)
        if self.negatives is Negatives.AUTO and "negatives" not in self.unused:
            is_mean = self.terms == (ObjectiveName.NOSTRUCT,)
            object.__setattr__(self, "negatives", Negatives.MEAN if is_mean else Negatives.HARDEST)

    def option(self, name: str) -> float:
        """Return a setting of an objective of another package."""
        given = dict(item.split("=", 1) for item in self.options)
        return float(given.get(name, self._defaults[name]))

    @property
    def _others(self) -> list[Any]:
        """Return the classes of the terms that are of other packages."""
        return [load_plugin(OBJECTIVES, term) for term in self.terms if term not in OBJECTIVE_SETTINGS]

    @property
    def _defaults(self) -> dict[str, float]:
        return {name: value for kind in self._others for name, value in getattr(kind, "options", {}).items()}

    @property
    def terms(self) -> tuple[str, ...]:
        """Return the objectives that the name sums, in the order of `ObjectiveName`; those of other packages last."""
        names = dict.fromkeys([*ObjectiveName, *plugins(OBJECTIVES)])
        known = {**{str(name): (name,) for name in names}, **SHORT_NAMES}
        parts = self.name.split("+")
        for part in parts:
            rule = f"expected one of {', '.join(known)}, or several joined by +; found {part!r}"
            require(part in known, field="objective.name", value=self.name, rule=rule)
        found = [name for part in parts for name in known[part]]
        require(len(set(found)) == len(found), field="objective.name", value=self.name, rule="sums a term twice")
        return tuple(name for name in names if name in found)

    @property
    def unused(self) -> frozenset[str]:
        """Return the settings that none of the terms reads; they are no keys of this configuration."""
        used = [OBJECTIVE_SETTINGS[ObjectiveName(term)] for term in self.terms if term in OBJECTIVE_SETTINGS]
        used += [frozenset({*getattr(kind, "reads", ()), "options"}) for kind in self._others]
        return _ALL_SETTINGS - frozenset[str]().union(*used)

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
class PlateauSchedule:
    """H, L: the rate falls when the validation loss has not improved for some epochs.

    Attributes:
        name: how the learning rate falls.
        epochs: epochs without improvement that are accepted (H: 3).
        factor: what the rate is divided by (H: 5).
    """

    name: Literal["plateau"] = "plateau"
    epochs: int = 3
    factor: float = 5.0

    def __post_init__(self) -> None:
        _check_numbers(self, "training.schedule", positive=["factor"], not_negative=["epochs"])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsSchedule:
    """N: the rate falls every few epochs.

    Attributes:
        name: how the learning rate falls.
        epochs: epochs between two falls (N: 10).
        factor: what the rate is divided by (N: 5).
    """

    name: Literal["steps"] = "steps"
    epochs: int = 10
    factor: float = 5.0

    def __post_init__(self) -> None:
        _check_numbers(self, "training.schedule", positive=["epochs", "factor"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantSchedule:
    """A: the rate stays.

    Attributes:
        name: how the learning rate falls.
    """

    name: Literal["constant"] = "constant"


Schedule = PlateauSchedule | StepsSchedule | ConstantSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """How it is minimised.

    Attributes:
        epochs: passes over the training split.
        negative_documents: `b`; a global batch is b + 1 documents whatever the number of workers.
        learning_rate: Adam's.
        schedule: how the rate falls.
        warmup_steps: steps over which the rate first rises linearly from `warmup_from` (L: 3000 or 4000); 0: none.
        warmup_from: see above (L: 1e-7).
        start_from: trained models whose weights the run starts from: one `MODEL`, or `ROLE=MODEL` for each source of
            `multi-source`. A model is a folder, `models:/NAME/VERSION`, `models:/NAME@ALIAS` or `runs:/RUN/model`.
        start_words: whether word vectors are taken over, too, word by word; else they start from
            `text.word_vectors` (N 5.2.3, all-for-one: another language's). New words always do.
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
    schedule: Schedule = field(default_factory=PlateauSchedule)
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
        _take_plain_names(self)
        _check_numbers(
            self,
            "training",
            positive=("epochs", "negative_documents", "learning_rate", "warmup_from"),
            not_negative=("warmup_steps", "frozen_epochs", "max_rows", "clip_norm", "seed"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """A complete training run, but for the data set and the number of workers.

    Attributes:
        recipe: name of these settings, as the run's tags tell it.
        data: what is read.
        dimensions: size of the joint space (H: 1024).
        text: the text tower.
        image: the image tower.
        objective: what is minimised.
        training: how.
    """

    recipe: str = "hessel-2019"
    data: DataConfig = field(default_factory=DataConfig)
    dimensions: int = 1024
    text: TextConfig = field(default_factory=GruConfig)
    image: ImageConfig = field(default_factory=LinearConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        require(self.dimensions > 0, field="dimensions", value=self.dimensions, rule="must be positive")
        for part, tower in (("text", self.text), ("image", self.image)):
            rule = f"is an {tower.part} tower"
            require(tower.part == part, field=f"{part}.name", value=tower.name, rule=rule)
            if isinstance(tower, TransformerConfig | RegionConceptConfig):
                rule = f"a transformer's heads must divide dimensions = {self.dimensions}"
                fits = self.dimensions % tower.heads == 0
                require(fits, field=f"{tower.part}.heads", value=tower.heads, rule=rule)


def _require_roles(roles: tuple[str, ...], *, field: str) -> None:
    known = [role.value for role in Role]
    rule = f"expected different roles of {', '.join(known)}"
    require(set(roles) <= set(known) and len(set(roles)) == len(roles), field=field, value=roles, rule=rule)


def _take_plain_names(config: object) -> None:
    """Replace the plain names of enumerations (`"ap"`) by their members."""
    for known in fields(config):  # type: ignore[arg-type]
        if isinstance(known.default, StrEnum):
            value, kind = getattr(config, known.name), type(known.default)
            rule = f"expected one of {', '.join(kind)}"
            require(value in list(kind), field=known.name, value=value, rule=rule)
            object.__setattr__(config, known.name, kind(value))


def _check_numbers(
    config: object, part: str, *, positive: Sequence[str], not_negative: Sequence[str] = (), shares: Sequence[str] = ()
) -> None:
    """Raise a `ConfigError` where a named setting is out of its range."""
    for name in (*positive, *not_negative, *shares):
        value = getattr(config, name)
        holds, rule = value > 0, "must be positive"
        if name in not_negative:
            holds, rule = value >= 0, "must not be negative"
        elif name in shares:
            holds, rule = 0 < value <= 1, "must be in (0, 1]"
        require(holds, field=f"{part}.{name}", value=value, rule=rule)


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _is_k(text: str) -> bool:
    if text in ("min", "half"):
        return True
    try:
        value = float(text)
    except ValueError:
        return False
    return 0 < value < 1 or (value >= 1 and value == int(value))
