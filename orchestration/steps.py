"""The steps from sources to links, each as the arguments of a `multilink` command; what is done is not repeated.

A step is a list of arguments, so that it can run in this process, in another, or on a cluster, and its result is the
summary that the command prints with `--json`. Dagster's assets and the demo call the same steps: the demo in its own
process, Dagster through Pipes (`dagster/pipes.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestration.config import DatasetSettings, RayWhere, Settings
from schemas.console import Say, captured_by
from schemas.errors import GateError, NotFoundError, as_arguments
from schemas.lake import Lake

if TYPE_CHECKING:
    from training.promotions.record import ModelVersion, Record

Step = Sequence[str]
Summary = dict[str, Any]


def in_process(step: Step, say: Say, _: RayWhere = RayWhere.SUBPROCESS) -> Summary:
    """Do a step here: the command line's own parser is called.

    Raises:
        MultilinkError: of the kind that the command ends with.
    """
    from orchestration.cli import app
    from orchestration.interrupts import STOPPED

    with captured_by(say) as summaries:
        try:
            if app(list(step), prog_name="multilink", standalone_mode=False) == STOPPED:
                raise KeyboardInterrupt
        except GateError:
            if not (summaries and is_decision(summaries[-1])):
                raise
    return summaries[-1]


def is_decision(summary: Summary) -> bool:
    """Return whether a summary is a decision of the gate: a refusal ends the command with an error, and is a result."""
    return "is_promoted" in summary


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps that settings describe: their lake, their MLflow store, and where Beam and Ray run.

    Attributes:
        settings: what they are composed of.
        run: does a step at a place, reports its progress, and returns its summary.
    """

    settings: Settings
    run: Callable[[Step, Say, RayWhere], Summary] = in_process

    def build(self, dataset: DatasetSettings, addresses: Sequence[str] = (), *, say: Say) -> Summary:
        """Build a version of a data set, or reuse the one that the same inputs gave before.

        `addresses` are settings with the addresses of a recorded web, in place of the real one.
        """
        beam = self.settings.beam
        recipe_ = ["--recipe", dataset.recipe] if dataset.recipe else []
        where = ["--lake", self.settings.lake, "--runner", beam.runner, "--workers", str(beam.workers)]
        options = ["--", *beam.options] if beam.options else []
        set_ = _set(*addresses, *dataset.settings)
        return self._run_here(["build", dataset.name, *where, *recipe_, *set_, "--json", *options], say)

    def train(self, dataset: DatasetSettings, version: str, objective: str, *, say: Say) -> Summary:
        """Train on a data set version and register the model as challenger; it is judged by a step of its own.

        A model that the same settings gave before is reused, a run of them that was stopped is continued, and one that
        another process trains is waited for.
        """
        settings = ["--recipe", dataset.recipe_of(objective), *_set(*dataset.training_of(objective))]
        where = ["--dataset", f"{dataset.name}@{version}", *self._stores(), *self._workers()]
        step = ["train", *where, "--reuse", "--no-report", *settings, "--json"]
        return self.run(step, say, self.settings.ray.where)

    def evaluate(self, model: str, reference: str, *, report: str, say: Say) -> Summary:
        """Score a model on the test split of a data set version, and draw the HTML report in the folder `report`."""
        where = ["--dataset", reference, *self._stores(), *self._workers_here(), "--report", report]
        return self._run_here(["evaluate", "--model", model, *where, "--json"], say)

    def compare(self, model: str, other: str, reference: str, *, say: Say) -> Summary:
        """Compare a model with another, document by document, on the validation split."""
        where = ["--dataset", reference, *self._stores(), *self._workers_here(), "--split", "val"]
        return self._run_here(["compare", other, model, *where, "--json"], say)

    def promote(self, model: str, version: str, *, policy: str = "", say: Say) -> Summary:
        """Decide whether a version becomes the champion, move the alias if so, and return the decision.

        `policy` is a file of the gate's settings; empty: the standard ones.
        """
        where = [*self._stores(), *self._workers_here(), *(["--policy", policy] if policy else [])]
        return self._run_here(["promote", "--model", model, "--version", version, *where, "--json"], say)

    def link(self, name: str, reference: str, *, champion: str | None = None, say: Say) -> Summary:
        """Link every document of a data set version with a model's champion; the summary is empty where there is none.

        Shards that were linked before are reused. A caller that knows the champion's version names it.
        """
        champion = champion or self._champion(name)
        if champion is None:
            return {}
        dataset, _, version = reference.partition("@")
        output = Lake.at(self.settings.lake).links(dataset, version, name, champion).uri
        where = ["--dataset", reference, *self._stores(), *self._workers(), "--output", output]
        where += self.settings.links.options
        step = ["link", "--model", f"models:/{name}/{champion}", *where, "--json"]
        return self.run(step, say, self.settings.ray.where) | {"model_version": champion}

    def index(self, name: str, reference: str, *, champion: str | None = None, say: Say) -> Summary:
        """Make the pictures of a data set version searchable by a model's champion; arguments as of `link`."""
        champion = champion or self._champion(name)
        if champion is None:
            return {}
        where = ["--dataset", reference, *self._stores(), *self._workers()]
        step = ["index", "--model", f"models:/{name}/{champion}", *where, "--json"]
        return self.run(step, say, self.settings.ray.where) | {"model_version": champion}

    def _champion(self, name: str) -> str | None:
        """Return the number of the champion of a registered model, whose name is in full; None where there is none."""
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
        return {"champion": self._champion(name) or "", "approvals": names and f"{challenger}: {names}"}

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

    def _stores(self) -> list[str]:
        """Return the options of a step that name lake and store; a store with credentials is in the environment alone.

        There the processes of this machine find it; jobs of a cluster have their own. Arguments are in lists of
        processes and jobs, and in manifests.
        """
        os.environ["MLFLOW_TRACKING_URI"] = self.settings.tracking_uri
        return ["--lake", self.settings.lake, *as_arguments("--tracking-uri", self.settings.tracking_uri)]

    def _workers(self) -> list[str]:
        return ["--workers", str(self.settings.ray.workers)]

    def _workers_here(self) -> list[str]:
        """Return the workers of a step of this machine, if it drives them: a cluster for seconds of work is not made.

        What is judged is a sample, and who promotes signs with a key of this machine.
        """
        return self._workers() if self.settings.ray.where is RayWhere.SUBPROCESS else []

    def _run_here(self, step: list[str], say: Say) -> Summary:
        """Do a step that takes seconds, or drives a Beam cluster: on this machine, wherever Ray is."""
        return self.run(step, say, RayWhere.SUBPROCESS)


def registered_name(dataset: str, objective: str) -> str:
    """Return the name that models of a data set and an objective are registered under."""
    from training.mlflow.stored import model_name

    return model_name(dataset, objective)


def _set(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]
