"""Settings of the orchestration: which data sets, when, with which objectives, and where Beam and Ray run.

One YAML file, named by `MULTILINK_SETTINGS`; without it every data set is there with its defaults, and nothing starts
by itself. Frozen dataclasses that import no framework; reading the file is the only thing that loading Dagster's
definitions does.

    lake: lake                                   # relative to this file
    datasets:
      - name: diy
        cron: "0 3 * * 1"
        settings: ["source.dump=/dumps/RS_2018-01.zst"]
        objectives: [nostruct, cross-document]
    beam: {runner: flink, options: ["--flink_master=flink:8081"]}
    ray: {where: ray-job, address: "http://head:8265", workers: 8}
    links: {precision: 0.9}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar
from zoneinfo import available_timezones

import yaml
from cronsim import CronSim, CronSimError
from msgspec import Meta

from pipelines.settings import Runner
from schemas import configs
from schemas.configs import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    pick,
    require,
    restore,
)
from schemas.duplicates import LeakKind
from schemas.messages import ConfigError, NotFoundError
from schemas.overrides import override
from schemas.plugins import OBJECTIVES, canonical_names
from training import recipes as train_recipes
from training.config import TrainConfig

if TYPE_CHECKING:
    from training.linking.links import LinkOptions

SETTINGS_VARIABLE = "MULTILINK_SETTINGS"
PAGE_VARIABLE = "MULTILINK_MLFLOW_PAGE"
NOSTRUCT = "nostruct"
WEEKLY, MONTHLY = "0 3 * * 1", "0 3 1 * *"
_CRON_FIELDS = 5


class RayWhere(StrEnum):
    """Where training runs."""

    SUBPROCESS = "subprocess"  # `multilink train` on this machine
    RAY_JOB = "ray-job"  # submitted to a Ray cluster's job server


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSettings:
    """One data set: how it is built, when, and what is trained on it.

    Attributes:
        name: data set, a partition of every asset.
        recipe: of the build; empty: the data set's own.
        settings: `key=value` overrides of the build, as `multilink build --set` takes them.
        cron: when it is rebuilt; empty: weekly for `diy`, monthly for the others.
        objectives: what a new version is trained with.
        train_recipe: of the models, but for an objective that has a recipe of its own name (`closed-form`).
        train_settings: overrides of the training, for every objective.
        policy: TOML file of the promotion gate's settings, relative to the settings file; empty: the standard ones.
    """

    name: str
    recipe: str = ""
    settings: tuple[str, ...] = ()
    cron: str = ""
    objectives: tuple[str, ...] = (NOSTRUCT, "cross-document")
    train_recipe: str = "hessel-2019"
    train_settings: tuple[str, ...] = ()
    policy: str = ""

    def __post_init__(self) -> None:
        from pipelines.config import recipe  # with every source, which few commands need

        override(recipe(self.name, self.recipe or None), self.settings)
        pick(train_recipes.RECIPES, self.train_recipe, what="recipe")
        field = f"datasets.{self.name}.objectives"
        named = [canonical_names(OBJECTIVES, objective, key=field) for objective in self.objectives]
        require(
            len(set(named)) == len(named),
            field=field,
            value=self.objectives,
            rule="expected each objective once, in whatever spelling",
        )
        rule = f"must have {_CRON_FIELDS} fields: minute, hour, day of month, month, day of week"
        try:
            CronSim(self.schedule, datetime(2026, 1, 1))
        except CronSimError as problem:
            rule = str(problem).lower()
        else:
            rule = rule if len(self.schedule.split()) != _CRON_FIELDS else ""
        require(not rule, field=f"datasets.{self.name}.cron", value=self.cron, rule=rule)

    @property
    def schedule(self) -> str:
        """Return the cron expression of its rebuilds."""
        return self.cron or (WEEKLY if self.name == "diy" else MONTHLY)

    def check_training(self) -> None:
        """Raise a `ConfigError` where a training has a setting that it does not know; imports the networks' library."""
        for objective in self.objectives:
            self.config_of(objective)

    def config_of(self, objective: str) -> TrainConfig:
        """Return the configuration of a training with an objective."""
        return override(train_recipes.recipe(self.recipe_of(objective)), self.training_of(objective))

    def recipe_of(self, objective: str) -> str:
        """Return the recipe of a training with an objective: `closed-form` has one of its own name."""
        return objective if objective in train_recipes.RECIPES else self.train_recipe

    def training_of(self, objective: str) -> tuple[str, ...]:
        """Return the overrides of a training with an objective."""
        return (*self.train_settings, f"objective.name={objective}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSettings(configs.Settings):
    """Where builds run.

    Attributes:
        runner: of `multilink build`: local on this machine, portable, flink, spark or dataflow on a cluster, which is
            driven from here.
        workers: worker processes on this machine.
        options: Beam's own options of a cluster.
    """

    part: ClassVar[str] = "beam"
    runner: Runner = Runner.LOCAL
    workers: PositiveInt = 1
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings(configs.Settings):
    """Where training runs.

    Attributes:
        where: see `RayWhere`.
        workers: processes that train, link and index; training takes at most one for each batch of a step
            (`training.batches_per_step`).
        address: of the Ray job server, `http://head:8265` (`ray-job`).
        deadline_s: seconds within which a job must have ended.
    """

    part: ClassVar[str] = "ray"
    where: RayWhere = RayWhere.SUBPROCESS
    workers: PositiveInt = 1
    address: str = ""
    deadline_s: PositiveInt = 48 * 3600

    def __post_init__(self) -> None:
        configs.Settings.__post_init__(self)
        has_address = bool(self.address) or self.where is not RayWhere.RAY_JOB
        require(has_address, field="ray.address", value="", rule="ray-job needs the address of a job server")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksSettings(configs.Settings):
    """How documents are linked, as `multilink link` takes it.

    Attributes:
        precision: to reach: less similar links are left out; null: none are.
        fit: whether documents of other data choose the weights of the model's steps.
        calibration: file of one, relative to the settings file; empty: the model's own.
    """

    part: ClassVar[str] = "links"
    precision: Annotated[float, Meta(ge=0, le=1)] | None = None
    fit: bool = True
    calibration: str = ""

    def options(self) -> LinkOptions:
        """Return the linker's options.

        Raises:
            IntegrityError: the file holds no calibration.
        """
        from training.linking.links import LinkOptions
        from training.metrics.calibration import read_calibration

        calibration = read_calibration(Path(self.calibration)) if self.calibration else None
        return LinkOptions(precision=self.precision, fit=self.fit, calibration=calibration)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings(configs.Settings):
    """Bounds of the blocking checks.

    Attributes:
        least_share: documents of a version over those of the sound version before it, at least; at most 1.
        most_share: the same, at most; at least 1.
        max_failure_share: of what a stage read, the share it could not use (what a rule rejects does not count).
        refused_leaks: kinds of content that no two splits may share. Single sentences are counted, not refused: "Thanks
            for looking!" is in every split.
        least_norm: of a feature vector.
        most_norm: of a feature vector.
    """

    part: ClassVar[str] = "checks"
    least_share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    most_share: Annotated[float, Meta(ge=1)] = 3.0
    max_failure_share: Annotated[float, Meta(ge=0, le=1)] = 0.25
    refused_leaks: tuple[LeakKind, ...] = (LeakKind.EXACT_IMAGE, LeakKind.NEAR_IMAGE, LeakKind.DOCUMENT_TEXT)
    least_norm: NonNegativeFloat = 1e-3
    most_norm: PositiveFloat = 1e4


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings(configs.Settings):
    """How often a step that failed is tried again, and after how long (doubled each time); mistakes are not."""

    part: ClassVar[str] = "retries"
    attempts: NonNegativeInt = 2
    delay_s: NonNegativeFloat = 30.0


def _every_dataset() -> tuple[DatasetSettings, ...]:
    from pipelines.config import datasets

    return tuple(DatasetSettings(name=name) for name in datasets())


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(configs.Settings):
    """Everything the definitions are made of.

    Attributes:
        lake: path or URI of the lake.
        tracking_uri: MLflow's store; empty: `mlflow.db` in the folder of the settings file.
        mlflow_page: address of MLflow's page, for links; empty: none is linked.
        datasets: partitions of the assets.
        beam: where builds run.
        ray: where training runs.
        links: how new versions are linked.
        checks: bounds of the checks.
        retries: of every step.
        is_running: whether schedules and sensors start by themselves.
        sensor_interval_s: least seconds between two evaluations of a sensor.
        timezone: of the schedules.
        owners: of every asset: e-mail addresses, or `team:NAME`.
        fresh_within_hours: an asset that was not made for so long is shown as stale; 0: none is.
    """

    lake: str = "lake"
    tracking_uri: str = ""
    mlflow_page: str = ""
    datasets: tuple[DatasetSettings, ...] = field(default_factory=_every_dataset)
    beam: BeamSettings = field(default_factory=BeamSettings)
    ray: RaySettings = field(default_factory=RaySettings)
    links: LinksSettings = field(default_factory=LinksSettings)
    checks: CheckSettings = field(default_factory=CheckSettings)
    retries: RetrySettings = field(default_factory=RetrySettings)
    is_running: bool = False
    sensor_interval_s: PositiveInt = 30
    timezone: str = "UTC"
    owners: tuple[str, ...] = ()
    fresh_within_hours: NonNegativeInt = 0

    def __post_init__(self) -> None:
        configs.Settings.__post_init__(self)
        for owner in self.owners:
            rule = "expected an e-mail address, or team:NAME"
            require("@" in owner or owner.startswith("team:"), field="owners", value=owner, rule=rule)
        zones = sorted(available_timezones())
        near = ", ".join(get_close_matches(self.timezone, zones, 1)) or "UTC"
        require(self.timezone in zones, field="timezone", value=self.timezone, rule=f"unknown; did you mean {near!r}?")
        names = [dataset.name for dataset in self.datasets]
        require(bool(names), field="datasets", value=names, rule="expected at least one")
        require(len(set(names)) == len(names), field="datasets", value=names, rule="expected each name once")
        without = [each.name for each in self.datasets if each.objectives and NOSTRUCT not in each.objectives]
        require(
            not without or NOSTRUCT not in self.objectives,
            field="datasets",
            value=without,
            rule=f"expected {NOSTRUCT} among the objectives of every data set, to compare with, or of none",
        )

    @property
    def objectives(self) -> tuple[str, ...]:
        """Return the objectives of all data sets, each once; NoStruct first, since the others are compared with it."""
        names = {objective for dataset in self.datasets for objective in dataset.objectives}
        return tuple(sorted(names, key=lambda name: (name != NOSTRUCT, name)))

    def dataset(self, name: str) -> DatasetSettings:
        """Return a data set's settings."""
        return next(dataset for dataset in self.datasets if dataset.name == name)

    def relative_to(self, folder: Path) -> Settings:
        """Return the settings with paths made absolute and the default store named, from the settings file's folder."""

        def path(given: str) -> str:
            return str((folder / given).absolute()) if given else ""

        made = (dataclasses.replace(each, policy=path(each.policy)) for each in self.datasets)
        links = dataclasses.replace(self.links, calibration=path(self.links.calibration))
        lake = self.lake if "://" in self.lake else str((folder / self.lake).absolute())
        tracking = self.tracking_uri or f"sqlite:///{path('mlflow.db')}"
        return dataclasses.replace(self, lake=lake, tracking_uri=tracking, datasets=tuple(made), links=links)


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings of the file that `MULTILINK_SETTINGS` names, or the defaults.

    Raises:
        NotFoundError: the file is not there.
        ConfigError: it is no YAML mapping, a key is unknown, or a value breaks a rule.
    """
    name = environment.get(SETTINGS_VARIABLE)
    if not name:
        return Settings().relative_to(Path.cwd())
    path = Path(name)
    if not path.is_file():
        raise NotFoundError(f"{SETTINGS_VARIABLE} = {name}: no such file")
    settings = read_settings(path.read_text(encoding="utf-8"), where=name).relative_to(path.absolute().parent)
    return dataclasses.replace(settings, mlflow_page=settings.mlflow_page or environment.get(PAGE_VARIABLE, ""))


def read_settings(text: str, *, where: str) -> Settings:
    """Return the settings of a YAML text; `where` names it in errors."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ConfigError(f"{where}: expected YAML: {' '.join(str(problem).split())}") from problem
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected a mapping of settings, found {type(values).__name__}")
    return restore(Settings, values)
