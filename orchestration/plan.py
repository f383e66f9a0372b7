"""The steps that the settings ask for, and what the registry says of their models.

Dagster's assets and the demo do the same steps. Each does not repeat what was done: a build, a training, links and an
index of the same inputs are reused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestration import steps
from orchestration.config import DatasetSettings, RayWhere, Settings
from orchestration.steps import Step
from schemas.documents import Split
from schemas.lake import Lake
from schemas.messages import NotFoundError, without_passwords

if TYPE_CHECKING:
    from training.promotions.record import ModelVersion, Record


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The steps that settings describe: with their lake, their MLflow store, and where Beam and Ray run.

    Attributes:
        settings: what the steps are composed of.
    """

    settings: Settings

    def build(self, dataset: DatasetSettings, addresses: Sequence[str] = ()) -> Step:
        """Return a build of a data set; `addresses` are settings with those of a recorded web, in place of the real."""
        beam = self.settings.beam
        return partial(
            steps.build,
            dataset=dataset.name,
            recipe=dataset.recipe,
            settings=(*addresses, *dataset.settings),
            lake=self.settings.lake,
            runner=beam.runner,
            workers=beam.workers,
            beam_options=beam.options,
        )

    def train(self, dataset: DatasetSettings, version: str, objective: str) -> Step:
        """Return a training on a data set version; the model is judged by a step of its own.

        A model that the same settings gave before is reused, a run of them that was stopped is continued, and one that
        another process trains is waited for. Of a cluster's workers as many train as a step has batches.
        """
        return partial(
            steps.train,
            dataset=f"{dataset.name}@{version}",
            recipe=dataset.recipe_of(objective),
            settings=dataset.training_of(objective),
            reuse=True,
            with_report=False,
            lake=self.settings.lake,
            tracking_uri=self._tracking_uri,
            workers=dataset.config_of(objective).most_workers(self.settings.ray.workers),
        )

    def evaluate(self, model: str, reference: str, *, report: str = "") -> Step:
        """Return an evaluation on the test split of a data set version.

        With `report`, a folder, the baselines are scored, too, and a report is written there.
        """
        return partial(
            steps.evaluate,
            model=model,
            dataset=reference,
            needs_links=True,
            with_baselines=bool(report),
            report=report,
            lake=self.settings.lake,
            tracking_uri=self._tracking_uri,
            workers=self._workers_here,
        )

    def compare(self, model: str, other: str, reference: str) -> Step:
        """Return a comparison of a model with another, document by document, on the validation split."""
        return partial(
            steps.compare,
            models=(other, model),
            dataset=reference,
            split=Split.VAL,
            lake=self.settings.lake,
            tracking_uri=self._tracking_uri,
            workers=self._workers_here,
        )

    def promote(self, model: str, version: str, *, policy: str = "") -> Step:
        """Return a promotion; `policy` is a file of the gate's settings; empty: the standard ones."""
        return partial(
            steps.promote,
            model=model,
            version=version,
            policy=policy,
            lake=self.settings.lake,
            tracking_uri=self._tracking_uri,
            workers=self._workers_here,
        )

    def link(self, name: str, reference: str, champion: str) -> Step:
        """Return a linking of every document of a data set version with a version of a registered model."""
        dataset, _, version = reference.partition("@")
        return partial(
            steps.link,
            model=f"models:/{name}/{champion}",
            dataset=reference,
            output=Lake.at(self.settings.lake).links(dataset, version, name, champion).uri,
            links=self.settings.links,
            lake=self.settings.lake,
            tracking_uri=self._tracking_uri,
            workers=self.settings.ray.workers,
        )

    def index(self, name: str, reference: str, champion: str) -> Step:
        """Return an index of a data set version's pictures by a version of a registered model."""
        return partial(
            steps.index,
            model=f"models:/{name}/{champion}",
            dataset=reference,
            lake=self.settings.lake,
            tracking_uri=self._tracking_uri,
            workers=self.settings.ray.workers,
        )

    def champion(self, name: str) -> str | None:
        """Return the number of the champion of a registered model; None where there is none."""
        record = self._record(name)
        return None if record is None or not record.is_there(record.champion or "") else record.champion

    def standing(self, dataset: str, objective: str) -> dict[str, str]:
        """Return the champion of a model, and who approved its challenger; empty: nobody.

        Raises:
            MultilinkError: as of `training.mlflow.champions.align`, which also corrects aliases: who stated something
                may have been killed right after it.
        """
        name = registered_name(dataset, objective)
        record = self._record(name)
        if record is None:
            return {}
        challenger = record.model.aliases.get("challenger", "")
        names = ", ".join(dict.fromkeys(each.by for each in record.approvals(challenger)))
        return {"champion": self.champion(name) or "", "approvals": names and f"{challenger}: {names}"}

    def _record(self, name: str) -> Record | None:
        """Return the record of promotions of a model; None where there is no such model."""
        from training.mlflow.champions import align

        try:
            return align(self.client(), name)
        except NotFoundError:
            return None

    def client(self) -> Any:
        """Return an `MlflowClient` of the store."""
        from training.mlflow.runs import open_tracking

        return open_tracking(self.settings.tracking_uri)

    def model_of(self, dataset: str, version: str, objective: str) -> ModelVersion | None:
        """Return the newest model of an objective that was trained on a data set version, or None."""
        from training.mlflow.registry import versions

        name = registered_name(dataset, objective)
        return next(iter(versions(self.client(), name=name, dataset_version=version)), None)

    def run_address(self, run_id: str, artifact: str = "") -> str:
        """Return the page of a run, or of a file of it; its address `runs:/` where there is no page."""
        from training.mlflow.runs import run_page

        page = self.settings.mlflow_page
        return run_page(self.client(), page, run_id, artifact) if page else f"runs:/{run_id}/{artifact}".rstrip("/")

    @property
    def _tracking_uri(self) -> str | None:
        """Return the store of a step; one with credentials is in the environment alone.

        There the processes of this machine find it; jobs of a cluster have their own. What a step is given is in lists
        of jobs.
        """
        uri = self.settings.tracking_uri
        if uri == without_passwords(uri):
            return uri
        os.environ["MLFLOW_TRACKING_URI"] = uri
        return None

    @property
    def _workers_here(self) -> int:
        """Return the workers of a step of this machine, if it drives them: a cluster for seconds of work is not made.

        What is judged is a sample, and who promotes signs with a key of this machine.
        """
        return self.settings.ray.workers if self.settings.ray.where is RayWhere.SUBPROCESS else 1


def registered_name(dataset: str, objective: str) -> str:
    """Return the name that models of a data set and an objective are registered under."""
    from training.mlflow.stored import model_name

    return model_name(dataset, objective)
