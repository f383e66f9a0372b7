"""What the assets call: one resource that builds data sets and one that trains, judges and links.

A resource knows where its steps run (`places.py`), from configuration alone, and turns an error a person has to act on
into a failure Dagster does not repeat; what another attempt may mend, the asset's retry policy tries again.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import dagster as dg

from orchestration.config import BeamSettings, BeamWhere, DatasetSettings, RaySettings, RayWhere, Settings
from orchestration.places import Place, in_process, in_subprocess, kuberay, ray_job
from orchestration.steps import BuildStep, CompareStep, EvaluateStep, LinkStep, PromoteStep, Say, Summary, TrainStep
from schemas.errors import GateError, IntegrityError, UsageError
from schemas.lake import Lake


class Pipelines(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Builds data sets with Beam.

    Attributes:
        lake: path or URI of the lake.
        where, runner, workers, options: as in `BeamSettings`.
    """

    lake: str
    where: str
    runner: str
    workers: int
    options: list[str]

    def build(self, dataset: DatasetSettings, say: Say) -> Summary:
        """Build a version of a data set and return the build's summary."""
        step = BuildStep(
            dataset=dataset.name,
            lake=self.lake,
            recipe=dataset.recipe,
            settings=dataset.settings,
            runner=self.runner,
            workers=self.workers,
            beam_options=tuple(self.options),
        )
        with mistakes_are_final(), _web(dataset) as addresses:
            return self.place(replace(step, settings=(*addresses, *step.settings)), say)

    @property
    def place(self) -> Place:
        """Return where builds run; a Beam cluster is driven from a process of its own."""
        return in_process if self.where == BeamWhere.IN_PROCESS else in_subprocess


class Training(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Trains with Ray and keeps models in MLflow.

    Attributes:
        lake: path or URI of the lake.
        tracking_uri: MLflow's store.
        page: address of MLflow's page; empty: there is none to link to.
        where, workers, address, image, namespace, gpus: as in `RaySettings`.
    """

    lake: str
    tracking_uri: str
    page: str
    where: str
    workers: int
    address: str
    image: str
    namespace: str
    gpus: int

    def train(self, dataset: DatasetSettings, version: str, objective: str, *, is_retry: bool, say: Say) -> Summary:
        """Train on a data set version, or give the model that these settings gave before, or go on with its run.

        Args:
            dataset: settings of the data set.
            version: of it.
            objective: name of the objective.
            is_retry: whether an earlier attempt may have left a run that says it is still running.
            say: takes a line of progress.
        """
        from orchestration.models import find_trained, resumable

        step = TrainStep(
            dataset=f"{dataset.name}@{version}",
            lake=self.lake,
            tracking=self.tracking_uri,
            recipe=dataset.train_recipe,
            settings=dataset.training_of(objective),
            workers=self.workers,
        )
        with mistakes_are_final():
            done = find_trained(self.tracking_uri, step)
            if done is not None:
                say(f"reused: {done['model_uri']} was trained on this version with these settings")
                return done
            resume = resumable(self.tracking_uri, step, is_retry=is_retry)
            return self.place(replace(step, resume=resume), say)

    def evaluate(self, model: str, reference: str, *, report: str = "", say: Say) -> Summary:
        """Score a model on the test split; with `report`, draw the report in that folder."""
        step = EvaluateStep(model=model, dataset=reference, lake=self.lake, tracking=self.tracking_uri, report=report)
        with mistakes_are_final():
            return self.near(step, say)

    def compare(self, model: str, other: str, reference: str, *, say: Say) -> Summary:
        """Compare a model with another on the documents that promotion judges by, pair by pair."""
        step = CompareStep(models=(other, model), dataset=reference, lake=self.lake, tracking=self.tracking_uri)
        with mistakes_are_final():
            return self.near(step, say)

    def promote(self, model: str, version: str, *, policy: str = "", say: Say) -> Summary:
        """Ask the gate, move the alias where it says yes, and return the decision; `policy` is a file."""
        step = PromoteStep(model=model, version=version, lake=self.lake, tracking=self.tracking_uri, policy=policy)
        with mistakes_are_final():
            return self.near(step, say)

    def link(self, model: str, reference: str, *, say: Say) -> Summary:
        """Link every document of a data set version with the champion; the summary is empty where there is none."""
        from orchestration.models import champion_of

        with mistakes_are_final():
            champion = champion_of(self.tracking_uri, model)
            if champion is None:
                return {}
            dataset, _, version = reference.partition("@")
            step = LinkStep(
                model=champion.uri,
                dataset=reference,
                lake=self.lake,
                tracking=self.tracking_uri,
                output=Lake.at(self.lake).links(dataset, version, champion.name, champion.version).uri,
                workers=self.workers,
            )
            return self.place(step, say) | {"model_version": champion.version}

    @property
    def place(self) -> Place:
        """Return where Ray is: training runs there, and linking."""
        places: dict[str, Place] = {
            RayWhere.IN_PROCESS: in_process,
            RayWhere.SUBPROCESS: in_subprocess,
            RayWhere.RAY_JOB: partial(ray_job, address=self.address),
            RayWhere.KUBERAY: partial(
                kuberay, image=self.image, namespace=self.namespace, workers=self.workers, gpus=self.gpus
            ),
        }
        return places[self.where]

    @property
    def near(self) -> Place:
        """Return where a model is scored: on this machine; it takes seconds."""
        return in_process if self.where == RayWhere.IN_PROCESS else in_subprocess


def make_resources(settings: Settings) -> dict[str, object]:
    """Return the resources by the names assets ask for."""
    return {"pipelines": _pipelines(settings.lake, settings.beam), "training": _training(settings, settings.ray)}


@contextlib.contextmanager
def mistakes_are_final() -> Iterator[None]:
    """Fail without another attempt where the remedy is a person's: a mistake, a gate's no, bytes that have changed."""
    try:
        yield
    except (UsageError, GateError, IntegrityError) as problem:
        raise dg.Failure(description=str(problem), allow_retries=False) from problem


def _pipelines(lake: str, beam: BeamSettings) -> Pipelines:
    return Pipelines(lake=lake, where=beam.where, runner=beam.runner, workers=beam.workers, options=list(beam.options))


def _training(settings: Settings, ray: RaySettings) -> Training:
    return Training(
        lake=settings.lake,
        tracking_uri=settings.tracking_uri,
        page=settings.mlflow_page,
        where=ray.where,
        workers=ray.workers,
        address=ray.address,
        image=ray.image,
        namespace=ray.namespace,
        gpus=ray.gpus,
    )


@contextlib.contextmanager
def _web(dataset: DatasetSettings) -> Iterator[tuple[str, ...]]:
    """Serve a data set's recorded web, where it has one, and give the settings that lead a build to it."""
    if not dataset.recorded_web:
        yield ()
        return
    from orchestration.demo.recorded_web import recording_at, scraping

    with scraping(recording_at(Path(dataset.recorded_web))) as settings:
        yield tuple(settings)
