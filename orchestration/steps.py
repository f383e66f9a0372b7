"""The steps an asset asks for, each as the `multilink` command it is and as the function behind that command.

Where a step runs changes neither: in this process the function is called, elsewhere the command is run with `--json`,
and both give the same summary. Running them is `places.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

Say = Callable[[str], None]
Summary = dict[str, Any]


class Step(Protocol):
    """What every step can do."""

    def arguments(self) -> list[str]:
        """Return the arguments of `multilink` that do this step and end with a summary as JSON."""
        ...

    def run(self, say: Say) -> Summary:
        """Do the step in this process and return the same summary."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStep:
    """Build a version of a data set, or reuse the one that the same inputs gave before."""

    dataset: str
    lake: str
    recipe: str = ""
    settings: tuple[str, ...] = ()
    runner: str = "local"
    workers: int = 1
    beam_options: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        recipe = ["--recipe", self.recipe] if self.recipe else []
        where = ["--runner", self.runner, "--workers", str(self.workers)]
        options = ["--", *self.beam_options] if self.beam_options else []
        return ["build", self.dataset, "--lake", self.lake, *recipe, *where, *_set(self.settings), "--json", *options]

    def run(self, say: Say) -> Summary:
        import os

        from pipelines.config import recipe
        from pipelines.run import build_dataset, parse_runner
        from pipelines.sources.diy.submissions import Credentials
        from schemas.configs import override
        from schemas.lake import Lake

        config = override(recipe(self.dataset, self.recipe or None), self.settings)
        return build_dataset(
            config,
            lake=Lake.at(self.lake),
            credentials=Credentials.from_environment(os.environ),
            runner=parse_runner(self.runner),
            workers=self.workers,
            beam_options=self.beam_options,
            say=say,
        ).to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainStep:
    """Train on a data set version and register the model as challenger; with `resume`, continue that run.

    The model is judged by a step of its own.
    """

    dataset: str
    lake: str
    tracking: str
    recipe: str
    settings: tuple[str, ...] = ()
    workers: int = 1
    resume: str = ""

    def arguments(self) -> list[str]:
        what = ["--resume", self.resume] if self.resume else ["--recipe", self.recipe, *_set(self.settings)]
        where = ["--lake", self.lake, "--tracking-uri", self.tracking, "--workers", str(self.workers)]
        return ["train", "--dataset", self.dataset, *where, "--no-report", *what, "--json"]

    def run(self, say: Say) -> Summary:
        from training.mlflow.tracked_training import run_train

        return run_train(
            lake=self.lake,
            dataset=self.dataset,
            recipe=None if self.resume else self.recipe,
            overrides=() if self.resume else self.settings,
            workers=self.workers,
            resume=self.resume or None,
            tracking=self.tracking,
            say=say,
        ).to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateStep:
    """Score a model on the test split of a data set version; with `report`, draw the HTML report in that folder."""

    model: str
    dataset: str
    lake: str
    tracking: str
    report: str = ""

    def arguments(self) -> list[str]:
        report = ["--report", self.report] if self.report else []
        where = ["--lake", self.lake, "--tracking-uri", self.tracking]
        return ["evaluate", "--model", self.model, "--dataset", self.dataset, *where, *report, "--json"]

    def run(self, say: Say) -> Summary:
        from pathlib import Path

        from training.commands import run_evaluate, run_report

        summary = run_evaluate(model=self.model, dataset=self.dataset, lake=self.lake, tracking=self.tracking, say=say)
        if not self.report:
            return summary.to_json()
        page = run_report(summary, lake=self.lake, directory=Path(self.report), tracking=self.tracking)
        return summary.to_json() | {"report": str(page)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareStep:
    """Compare models with the first of them on the validation split of a data set version; see `gate.Policy.split`."""

    models: tuple[str, ...]
    dataset: str
    lake: str
    tracking: str

    def arguments(self) -> list[str]:
        where = ["--dataset", self.dataset, "--lake", self.lake, "--tracking-uri", self.tracking]
        return ["compare", *self.models, *where, "--split", "val", "--json"]

    def run(self, say: Say) -> Summary:
        from training.commands import run_compare

        return run_compare(
            models=self.models, dataset=self.dataset, lake=self.lake, split="val", tracking=self.tracking, say=say
        ).to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteStep:
    """Ask the gate whether a version may become the champion, and move the alias where it may.

    `policy` is a file of the gate's settings; empty: the standard ones.
    """

    model: str
    version: str
    lake: str
    tracking: str
    policy: str = ""

    def arguments(self) -> list[str]:
        where = ["--lake", self.lake, "--tracking-uri", self.tracking]
        policy = ["--policy", self.policy] if self.policy else []
        return ["promote", "--model", self.model, "--version", self.version, *where, *policy, "--json"]

    def run(self, say: Say) -> Summary:
        from pathlib import Path

        from schemas.lake import Lake
        from training.mlflow.gate import read_policy
        from training.mlflow.promotion import promote
        from training.mlflow.runs import open_tracking

        policy, lake = read_policy(Path(self.policy) if self.policy else None), Lake.at(self.lake)
        return promote(
            open_tracking(self.tracking), self.model, self.version, lake=lake, policy=policy, say=say
        ).to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStep:
    """Link every document of a data set version with a model; what was linked before is reused."""

    model: str
    dataset: str
    lake: str
    tracking: str
    output: str
    workers: int = 1

    def arguments(self) -> list[str]:
        where = ["--lake", self.lake, "--tracking-uri", self.tracking, "--workers", str(self.workers)]
        return ["link", "--model", self.model, "--dataset", self.dataset, *where, "--output", self.output, "--json"]

    def run(self, say: Say) -> Summary:
        from training.linking_commands import run_link_version

        return run_link_version(
            model=self.model,
            dataset=self.dataset,
            lake=self.lake,
            output=self.output,
            workers=self.workers,
            tracking=self.tracking,
            say=say,
        ).to_json()


def _set(settings: tuple[str, ...]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]
