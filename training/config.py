"""Settings of a training run: frozen dataclasses that import no framework.

`TrainConfig` is what `multilink train --set key=value` addresses; named complete runs are in `recipes.py`. Towers and
objectives are parts (`training.parts`), and what they must agree on is checked here. `data/` knows no configuration,
only what is read (`TrainConfig.reading`).
"""

import os
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from schemas.configs import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Settings, require
from schemas.messages import ConfigError, UsageError
from schemas.plugins import IMAGE_TOWERS, OBJECTIVES, SUM, TEXT_TOWERS, Group, canonical_names, find_part
from training.objectives.term import Term
from training.parts import DataConfig, LinkSettings, Needs, PartSettings, Reading, parts_in
from training.towers.settings import ImageTowerSettings, TextTowerSettings

TAKEN_WORDS = "training.start_from"


class Select(StrEnum):
    """Which epoch is kept (SPEC 6).

    `retrieval`: the lowest mean rank of a document's own images for its sentences; `median-rank`: the lowest median of
    those ranks (A).
    """

    LOSS = "loss"
    LAST = "last"
    RETRIEVAL = "retrieval"
    MEDIAN_RANK = "median-rank"


class RateScaling(StrEnum):
    """What the learning rate is multiplied by for K batches a step: 1, the square root of K (usual for Adam), or K."""

    NONE = "none"
    SQUARE_ROOT = "square-root"
    LINEAR = "linear"

    @property
    def exponent(self) -> float:
        """Return the power of K that the rate is multiplied by."""
        return {"none": 0.0, "square-root": 0.5, "linear": 1.0}[self]


class Precision(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


NO_GPU = "training.device = 'cuda': this machine has no usable GPU; use --set training.device=cpu"


class Device(StrEnum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


def check_driver() -> None:
    """Raise a `ConfigError` where training is to be on a GPU and here, and this machine has no driver of one.

    Whether a GPU with a driver can be used is known to PyTorch, which takes seconds to import.
    """
    drivers = (path for name in ("nvidia*", "nvhost*", "kfd", "dxg") for path in Path("/dev").glob(name))
    if not os.environ.get("RAY_ADDRESS") and not any(drivers):
        raise ConfigError(NO_GPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSettings(Settings):
    """How the learning rate falls.

    Attributes:
        patience: epochs without improvement of the validation loss before a plateau is counted.
    """

    part: ClassVar[str] = "training.schedule"

    @property
    def patience(self) -> int:
        return 0

    def rate(self, base: float, *, epoch: int, plateaus: int) -> float:
        """Return the learning rate after `base` in an epoch (from 1), after so many plateaus of the validation loss."""
        return base


@dataclass(frozen=True, slots=True, kw_only=True)
class PlateauSchedule(RateSettings):
    """H, L: the rate falls when the validation loss has not improved for some epochs.

    Attributes:
        name: how the learning rate falls.
        epochs: accepted epochs without improvement (H: 3).
        factor: divisor of the rate (H: 5).
    """

    name: Literal["plateau"] = "plateau"
    epochs: NonNegativeInt = 3
    factor: PositiveFloat = 5.0

    @property
    def patience(self) -> int:
        return self.epochs

    def rate(self, base: float, *, epoch: int, plateaus: int) -> float:
        return float(base / self.factor**plateaus)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsSchedule(RateSettings):
    """N: the rate falls every few epochs.

    Attributes:
        name: how the learning rate falls.
        epochs: epochs between two falls (N: 10).
        factor: what the rate is divided by (N: 5).
    """

    name: Literal["steps"] = "steps"
    epochs: PositiveInt = 10
    factor: PositiveFloat = 5.0

    def rate(self, base: float, *, epoch: int, plateaus: int) -> float:
        return float(base / self.factor ** ((epoch - 1) // self.epochs))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantSchedule(RateSettings):
    """A: the rate stays.

    Attributes:
        name: how the learning rate falls.
    """

    name: Literal["constant"] = "constant"


Schedule = PlateauSchedule | StepsSchedule | ConstantSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig(Settings):
    """How it is minimised.

    Attributes:
        epochs: passes over the training split.
        negative_documents: negatives of a document; a batch is one document more, with any number of workers.
        batches_per_step: batches in a step, which follows the gradient of their mean loss (papers: 1). One worker
            computes a batch, so at most this many workers train.
        rate_scaling: factor of the learning rates for several batches a step.
        learning_rate: learning rate of Adam.
        schedule: how the rate falls.
        warmup_steps: steps over which the rate first rises linearly from `warmup_from` (L: 3000 or 4000); 0: none.
        warmup_from: rate at the first step of the warm-up (L: 1e-7).
        start_from: trained models whose weights the run starts from: one `MODEL`, or `ROLE=MODEL` for each source of
            `multi-source`. A model is a folder, `models:/NAME/VERSION`, `models:/NAME@ALIAS` or `runs:/RUN/model`.
        start_words: whether word vectors are taken over, too; else, and for new words, they start from
            `text.word_vectors` (N 5.2.3, all-for-one: another language's).
        frozen_epochs: first epochs in which weights from `start_from` do not change (N 6.2: 1).
        max_rows: largest number of random sentences, and of images, of a document in a step (H suppl. 2: 10); 0: all.
        clip_norm: largest norm of gradients; larger ones are scaled down. 0: no limit.
        select: which epoch is kept.
        seed: seed of initial weights, batches, dropout and samples.
        precision: precision of matrix products (autocast).
        device: `auto` takes a GPU where there is one.
    """

    part: ClassVar[str] = "training"
    epochs: PositiveInt = 50
    negative_documents: PositiveInt = 10
    batches_per_step: PositiveInt = 1
    rate_scaling: RateScaling = RateScaling.NONE
    learning_rate: PositiveFloat = 1e-4
    schedule: Schedule = field(default_factory=PlateauSchedule)
    warmup_steps: NonNegativeInt = 0
    warmup_from: PositiveFloat = 1e-7
    start_from: tuple[str, ...] = ()
    start_words: bool = True
    frozen_epochs: NonNegativeInt = 0
    max_rows: NonNegativeInt = 0
    clip_norm: NonNegativeFloat = 0.0
    select: Select = Select.LOSS
    seed: NonNegativeInt = 0
    precision: Precision = Precision.FLOAT32
    device: Device = Device.AUTO


def _part(group: Group, name: str, **settings: Any) -> Any:
    return find_part(group, name)(**settings)


text_tower, image_tower = partial(_part, TEXT_TOWERS), partial(_part, IMAGE_TOWERS)


def objective(names: str, **settings: Any) -> tuple[Term, ...]:
    """Return the terms that a sum such as `cross+intra` names; a setting goes to every term that has it.

    Raises:
        ConfigError: there is no such term, no term has a setting, or a value breaks a rule.
    """
    kinds = {name: find_part(OBJECTIVES, name) for name in canonical_names(OBJECTIVES, names, key="objective.name")}
    keys = {name: {each.name for each in fields(kind)} for name, kind in kinds.items()}
    rule = f"objective '{names}' has no such setting"
    for key, value in settings.items():
        require(any(key in each for each in keys.values()), field=f"objective.{key}", value=value, rule=rule)
    return tuple(
        kind(**{key: value for key, value in settings.items() if key in keys[name]}) for name, kind in kinds.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(Settings):
    """A complete training run, but for the data set and the number of workers.

    Attributes:
        recipe: name of these settings in the run's tags.
        data: what is read.
        dimensions: size of the joint space (H: 1024).
        text: the text tower.
        image: the image tower.
        objective: what is minimised: the sum of these terms.
        training: how.
        link: what is done with similarities before links are chosen.
    """

    recipe: str = "hessel-2019"
    data: DataConfig = field(default_factory=DataConfig)
    dimensions: PositiveInt = 1024
    text: Annotated[TextTowerSettings, TEXT_TOWERS] = field(default_factory=partial(text_tower, "gru"))
    image: Annotated[ImageTowerSettings, IMAGE_TOWERS] = field(default_factory=partial(image_tower, "linear"))
    objective: tuple[Annotated[Term, OBJECTIVES], ...] = field(default_factory=partial(objective, "cross-document"))
    training: LoopConfig = field(default_factory=LoopConfig)
    link: LinkSettings = field(default_factory=LinkSettings)

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        rule = "cannot be the whole objective; add it to one, as in triplet-hardest+coherence"
        is_whole = any(not each.is_addition for each in self.objective)
        require(is_whole, field="objective.name", value=self.objective_name, rule=rule)
        for tower in (self.text, self.image):
            rule = f"a transformer's heads must divide dimensions = {self.dimensions}"
            require(self.dimensions % tower.divisor == 0, field=f"{tower.part}.heads", value=tower.divisor, rule=rule)
        self._check_texts()
        if any(each.is_solved for each in self.objective):
            self._check_solved()

    def _check_texts(self) -> None:
        """Check that both towers can read the texts that they share."""
        roles = self.data.roles
        rule = f"text.name = '{self.text.name}' reads the roles of text.sources; leave data.roles empty"
        require(not (self.needs.sources and roles), field="data.roles", value=roles, rule=rule)
        if self.image.needs.labels:
            rule = (
                "region labels need the word vectors of the text tower, and this tower has none; use bilstm-attention, "
                "gru or transformer, or --set image.concepts=false"
            )
            require(self.text.shares_words, field="text.name", value=self.text.name, rule=rule)
            rule = "region labels have one language, the word vectors several; use --set image.concepts=false"
            require(not self.text.needs.languages, field="image.concepts", value=True, rule=rule)

    def _check_solved(self) -> None:
        """Check that an objective which solves for maps stands alone, and its maps can be set."""
        name = self.objective_name
        rule = "an objective that solves for maps cannot be summed with others"
        require(len(self.objective) == 1, field="objective.name", value=name, rule=rule)
        for tower in (self.text, self.image):
            rule = f"{name} solves for affine maps; set text.name=sentence and image.name=linear"
            require(tower.is_affine, field=f"{tower.part}.name", value=tower.name, rule=rule)
        for setting in ("start_from", "max_rows"):
            value = getattr(self.training, setting)
            rule = f"{name} needs no starting model and reads whole documents; leave training.{setting} unset"
            require(not value, field=f"training.{setting}", value=value, rule=rule)

    @property
    def is_solved(self) -> bool:
        """Return whether maps are solved for, without steps along a gradient."""
        return all(term.is_solved for term in self.objective)

    @property
    def objective_name(self) -> str:
        """Return the names of the terms, joined by `+`."""
        return SUM.join(each.name for each in self.objective)

    def check_workers(self, workers: int) -> None:
        """Raise a `UsageError` unless so many workers can train together: a batch of a step lives on one worker."""
        if workers < 1:
            raise UsageError(f"--workers {workers}: expected at least 1")
        batches = self.training.batches_per_step
        if workers > self.most_workers(workers):
            raise UsageError(
                f"--workers {workers}: a step has training.batches_per_step = {batches}, and each batch is computed by "
                f"one worker; use --workers {batches}, or --set training.batches_per_step={workers} with "
                "--set training.rate_scaling=square-root, the rule of Adam's rate for larger steps"
            )

    def most_workers(self, workers: int) -> int:
        """Return how many of so many workers can train together."""
        return workers if self.is_solved else min(workers, self.training.batches_per_step)

    @property
    def parts(self) -> tuple[PartSettings, ...]:
        """Return the parts that were chosen by name, those of parts too."""
        return tuple(parts_in(self))

    @property
    def needs(self) -> Needs:
        """Return what the run reads of a data set."""
        return reduce(or_, (part.needs for part in self.parts))

    @property
    def reading(self) -> Reading:
        """Return what is read of a data set, for `data/`."""
        settings = self.training
        return Reading(
            needs=self.needs,
            data=self.data,
            seed=settings.seed,
            max_rows=settings.max_rows,
            objective=self.objective_name,
            places=self.link.order != "off",
        )

    @property
    def words_start(self) -> str:
        """Return what word vectors start from; "" where the text tower reads no words."""
        is_taken = self.training.start_from and self.training.start_words
        return TAKEN_WORDS if self.text.words_from and is_taken else self.text.words_from

    @property
    def similarities(self) -> str:
        """Return the names of the similarities that the terms compare sets by; "" where none does."""
        kinds = (term.similarity for term in self.objective)
        return " ".join(dict.fromkeys(kind.name for kind in kinds if kind is not None))

    @property
    def traits(self) -> dict[str, str]:
        """Return what runs differ in that their names do not say, for tags, reports and cards.

        They are the start of words and the negatives; terms of a sum that differ in these are named one by one.
        """
        negatives = {term.name: str(term.negatives) for term in self.objective if term.negatives is not None}
        kinds = set(negatives.values())
        by_term = ", ".join(f"{name} {kind}" for name, kind in negatives.items())
        traits = {"word_vectors": self.words_start, "negatives": by_term if len(kinds) > 1 else "".join(kinds)}
        return {name: value for name, value in traits.items() if value}
