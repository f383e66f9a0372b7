"""The steps from sources to links: functions with typed settings, which commands, the demo and Dagster's assets call.

The settings of a step are its keyword parameters, with the meanings of the command's options of those names. A step
that is not done yet is a `functools.partial`. Another process is given it as JSON (`as_json`, `from_json`): the types
of the parameters are checked there.

Every step raises a `MultilinkError` of the kind that its command ends with. Importing this imports no library that a
step is done with.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestration.config import LinksSettings
from orchestration.console import as_mapping
from pipelines.settings import Runner
from schemas.configs import coerce, unknown_key
from schemas.documents import Split
from schemas.lake import Lake
from schemas.messages import ConfigError, GateError, IntegrityError, Say, UsageError
from schemas.overrides import override
from schemas.versions import plain

if TYPE_CHECKING:
    from newsroom.archive.build import BuiltIndex
    from pipelines.run import BuildSummary
    from training.evaluation.studies import ModelComparison
    from training.linking.versions import LinkedVersion
    from training.mlflow.promotion import Promotion
    from training.mlflow.tracked_training import TrainSummary
    from training.workflows.evaluate import EvaluateSummary

FINAL = (UsageError, GateError, IntegrityError)  # another attempt is of no use: a person has to act
Settings = tuple[str, ...]  # KEY=VALUE each
Step = partial[Any]  # a function of this module with its settings; it takes what shows a line of progress


def build(
    say: Say,
    *,
    dataset: str,
    lake: str,
    recipe: str = "",
    settings: Settings = (),
    runner: Runner = Runner.LOCAL,
    workers: int = 1,
    beam_options: tuple[str, ...] = (),
    ask_again: bool = False,
) -> "BuildSummary":
    """Build a version of a data set, or reuse the one that the same inputs gave before."""
    from pipelines import config

    asked = override(config.recipe(dataset, recipe or None), settings)
    if ask_again:
        asked = replace(asked, http=replace(asked.http, ask_again_before=time.time()))
    from pipelines.run import build_dataset

    return build_dataset(
        asked,
        lake=Lake.at(lake),
        runner=runner,
        workers=workers,
        beam_options=beam_options,
        say=say,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A model, and its evaluation where it was evaluated."""

    summary: "TrainSummary"
    evaluation: "EvaluateSummary | None"

    def to_json(self) -> dict[str, Any]:
        return self.summary.to_json() | {"evaluation": self.evaluation}


def train(
    say: Say,
    *,
    lake: str,
    dataset: str | None = None,
    recipe: str | None = None,
    settings: Settings = (),
    workers: int = 1,
    resume: str | None = None,
    reuse: bool = False,
    with_report: bool = True,
    tracking_uri: str | None = None,
) -> Trained:
    """Train on a data set version, log the run, and register the model as challenger."""
    from training.mlflow.tracked_training import run_train

    summary = run_train(
        lake=lake,
        dataset=dataset,
        recipe=recipe,
        overrides=settings,
        workers=workers,
        resume=resume,
        reuse=reuse,
        tracking=tracking_uri,
        say=say,
    )
    if not with_report:
        return Trained(summary=summary, evaluation=None)
    from training.workflows.evaluate import run_training_report

    evaluation = run_training_report(summary, lake=lake, tracking=tracking_uri, say=say)
    return Trained(summary=summary, evaluation=evaluation)


def evaluate(
    say: Say,
    *,
    model: str,
    dataset: str,
    lake: str,
    split: Split = Split.TEST,
    settings: Settings = (),
    with_baselines: bool = True,
    needs_links: bool = False,
    report: str = "",
    workers: int = 1,
    tracking_uri: str | None = None,
) -> "EvaluateSummary":
    """Score a model on a split of a data set version; with a folder, write the HTML report there, too."""
    from training.evaluation.evaluate import STANDARD_CONFIG
    from training.workflows.evaluate import run_evaluate, run_report
    from training.workflows.workers import by_workers

    with by_workers(workers):
        summary = run_evaluate(
            model=model,
            dataset=dataset,
            lake=lake,
            split=split,
            tracking=tracking_uri,
            config=override(STANDARD_CONFIG, settings),
            with_baselines=with_baselines,
            needs_links=needs_links,
            say=say,
        )
    if not report:
        return summary
    path = str(run_report(summary, Path(report), lake=lake, tracking=tracking_uri))
    return replace(summary, notes=(*summary.notes, f"report: {path}"), values={**summary.values, "report": path})


def compare(
    say: Say,
    *,
    models: tuple[str, ...],
    lake: str,
    dataset: str | None = None,
    split: Split = Split.TEST,
    workers: int = 1,
    tracking_uri: str | None = None,
) -> "ModelComparison":
    """Compare models, or baselines by name, with the first one, document by document."""
    from training.workflows.studies import run_compare
    from training.workflows.workers import by_workers

    with by_workers(workers):
        return run_compare(models=models, dataset=dataset, lake=lake, split=split, tracking=tracking_uri, say=say)


def promote(
    say: Say,
    *,
    model: str,
    version: str,
    policy: str = "",
    dataset: str | None = None,
    is_dry_run: bool = False,
    lake: str = "",
    store: str = "",
    workers: int = 1,
    tracking_uri: str | None = None,
) -> "Promotion":
    """Make a version the champion if the policy allows it; a refusal is a result."""
    from training.mlflow.policy import read_policy

    rules = read_policy(Path(policy) if policy else None)
    from newsroom.decisions.comparison import preferred_by_editors
    from training.mlflow import promotion
    from training.mlflow.loading import open_registry
    from training.workflows.workers import by_workers

    with by_workers(workers):
        return promotion.promote(
            open_registry(tracking_uri, [f"models:/{model}"]),
            model,
            version,
            lake=Lake.at(lake) if lake else None,
            dataset=dataset,
            policy=rules,
            preferred=partial(preferred_by_editors, store),
            is_dry_run=is_dry_run,
            say=say,
        )


def link(
    say: Say,
    *,
    dataset: str,
    lake: str,
    output: str,
    model: str | None = None,
    splits: tuple[str, ...] = (),
    links: LinksSettings | None = None,
    workers: int = 1,
    tracking_uri: str | None = None,
) -> "LinkedVersion":
    """Link the documents of a data set version; shards that were linked before are reused."""
    options = (links or LinksSettings()).options()
    from training.mlflow.loading import open_model
    from training.workflows.link import run_link_version
    from training.workflows.workers import by_workers

    loaded = open_model(model, tracking_uri, dataset=dataset)
    with by_workers(workers):
        return run_link_version(loaded, Lake.at(lake), dataset, output, splits=splits, options=options, say=say)


def index(
    say: Say,
    *,
    lake: str,
    model: str | None = None,
    dataset: str = "",
    pictures: str | None = None,
    settings: Settings = (),
    workers: int = 1,
    tracking_uri: str | None = None,
) -> "BuiltIndex":
    """Make the pictures of a data set version, or of an archive that is built first, searchable by a model."""
    from newsroom.archive.build import build_index
    from training.mlflow.loading import open_model, write_model
    from training.promotions.keys import accepts_index, sign_index
    from training.workflows.workers import by_workers

    home, loaded = Lake.at(lake), open_model(model, tracking_uri, dataset=dataset)
    if pictures is not None:
        from orchestration.inference.documents import build_archive

        dataset = build_archive(loaded.model.card.data, pictures, settings, lake=home, say=say)
    with by_workers(workers):
        return build_index(
            loaded.model,
            home,
            dataset,
            uri=loaded.uri,
            name=loaded.index_name,
            save=partial(write_model, loaded),
            sign=sign_index,
            accepts=accepts_index,
            say=say,
        )


_STEPS = {each.__name__: each for each in (build, train, evaluate, compare, promote, link, index)}


def summary_of(step: Step, say: Say) -> dict[str, Any]:
    """Do a step and return what its command prints with `--json`."""
    made: dict[str, Any] = json.loads(json.dumps(as_mapping(step(say)), default=as_mapping))
    return made


def as_json(step: Step) -> dict[str, Any]:
    """Return a step as values of JSON, which `from_json` reads."""
    return {"step": step.func.__name__, "settings": {name: plain(value) for name, value in step.keywords.items()}}


def from_json(values: Mapping[str, Any]) -> Step:
    """Return the step whose `as_json` the values are.

    Raises:
        ConfigError: a setting is unknown, or has another type.
    """
    function, known = _STEPS[values["step"]], signature(_STEPS[values["step"]]).parameters
    for name in values["settings"]:
        if name not in known:
            raise ConfigError(unknown_key(name, known))
    settings = {name: coerce(value, known[name].annotation, key=name) for name, value in values["settings"].items()}
    return partial(function, **settings)
