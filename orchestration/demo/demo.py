"""The main job on recorded input, end to end: scrape, build, train, evaluate, promote, link - and what to open next.

Each step is the function behind its command, with the same checks. A step that finds its result in the workspace says
so and does not repeat it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemas.console import Console
from schemas.documents import Split
from schemas.errors import GateError
from schemas.lake import Lake
from schemas.versions import code_version, fingerprint

if TYPE_CHECKING:
    from training.commands import EvaluateSummary
    from training.mlflow.tracked_training import TrainSummary

DATASET = "diy"
MODEL_SETTINGS: dict[str, list[str]] = {"NoStruct": ["objective.name=nostruct"], "AP": []}
LINKED_DOCUMENTS = 8
DATABASE = "mlflow.db"


def demo(
    workspace: Annotated[Path, typer.Option(help="Folder that everything is written to.")] = Path("demo"),
    workers: Annotated[int, typer.Option(help="Worker processes of the build and of training.")] = 1,
    is_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")] = False,
) -> None:
    """Run the main job on the recorded web: scrape, build, train, evaluate, promote, link.

    Takes a few minutes on two cores; run again, it says what it reuses. Needs a clone of the repository.
    """
    console = Console(is_json=is_json)
    run = DemoRun(workspace.absolute(), workers, console)
    build = run.build()
    models = {title: run.train(title, build["version"]) for title in MODEL_SETTINGS}
    scores = {title: run.evaluate(model) for title, model in models.items()}
    report = run.report(scores)
    promotion = run.promote(models["AP"])
    linked = run.link(build["version"], models["AP"])
    console.summarise(
        summary_lines(run, scores, report, linked),
        {
            "build": build,
            "models": {title: model.to_json() for title, model in models.items()},
            "scores": {title: score.to_json() for title, score in scores.items()},
            "promotion": promotion,
            "report": str(report),
            "links": str(linked),
            "tracking_uri": run.tracking,
        },
    )
    own, chance = (scores["AP"].means(name)["auc"] for name in (None, "random"))
    if (own.low or 0.0) <= (chance.high or 100.0):
        raise GateError("the demo's model is not shown to beat random: their 95% intervals overlap")


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run of the demo in its workspace."""

    workspace: Path
    workers: int
    console: Console

    @property
    def lake(self) -> Lake:
        return Lake.at(str(self.workspace / "lake"))

    @property
    def tracking(self) -> str:
        return f"sqlite:///{self.workspace / DATABASE}"

    def build(self) -> dict[str, Any]:
        """Scrape the recorded web and build the data set; gives the build's summary."""
        from orchestration.demo.recorded_web import recording_at, scraping
        from pipelines.config import recipe
        from pipelines.run import build_dataset
        from pipelines.sources.diy.submissions import Credentials
        from schemas.configs import override

        recording = recording_at()
        self.console.say("1/6 build: scraping the recorded web and building the data set diy")
        with scraping(recording) as settings:
            config = override(recipe(DATASET), settings)
            summary = build_dataset(
                config, lake=self.lake, credentials=Credentials(), workers=self.workers, say=self.console.say
            )
        if summary.why_reused:
            self.console.say(f"reused: {summary.why_reused}")
        splits = ", ".join(f"{name} {row.documents}" for name, row in summary.manifest.splits.items())
        self.console.say(f"diy@{summary.manifest.version}: {splits} documents")
        return summary.to_json()

    def train(self, title: str, version: str) -> TrainSummary:
        """Train one model, or take the one that the same settings gave on this version before."""
        from training.mlflow.tracked_training import TrainSummary, run_train

        settings = MODEL_SETTINGS[title]
        key = fingerprint([version, "tiny", settings, self.workers, code_version()])[:16]
        note = self.workspace / "trained" / f"{key}.json"
        self.console.say(f"2/6 train: {title}, recipe tiny, on {DATASET}@{version}")
        if note.is_file() and (self.workspace / DATABASE).is_file():
            summary = TrainSummary(**json.loads(note.read_text()))
            self.console.say(f"reused: {summary.model_uri} was trained on this version with these settings")
            return summary
        summary = run_train(
            lake=self.lake.root.uri,
            dataset=f"{DATASET}@{version}",
            recipe="tiny",
            overrides=settings,
            workers=self.workers,
            tracking=self.tracking,
            say=self.console.say,
        )
        note.parent.mkdir(parents=True, exist_ok=True)
        values = summary.to_json()
        del values["model_uri"]
        note.write_text(json.dumps(values))
        return summary

    def evaluate(self, trained: TrainSummary) -> EvaluateSummary:
        """Evaluate a model on the test split."""
        from training.commands import run_evaluate

        self.console.say(f"3/6 evaluate: {trained.model_uri}")
        return run_evaluate(
            model=trained.model_uri,
            dataset=f"{trained.dataset}@{trained.dataset_version}",
            lake=self.lake.root.uri,
            tracking=self.tracking,
            say=self.console.say,
        )

    def report(self, scores: dict[str, EvaluateSummary]) -> Path:
        """Write the HTML report of the model; NoStruct and the other baselines were scored beside it."""
        from training.commands import run_report

        return run_report(
            scores["AP"], lake=self.lake.root.uri, directory=self.workspace / "report", tracking=self.tracking
        )

    def promote(self, trained: TrainSummary) -> dict[str, Any]:
        """Promote the model where the gate allows it."""
        from training.mlflow.promotion import promote
        from training.mlflow.runs import open_tracking

        self.console.say(f"4/6 promote: {trained.model} version {trained.version}")
        client = open_tracking(self.tracking)
        promotion = promote(client, trained.model, trained.version, lake=self.lake, say=self.console.say)
        for reason in promotion.decision.reasons:
            self.console.say(reason)
        return promotion.to_json()

    def link(self, version: str, trained: TrainSummary) -> Path:
        """Link some documents of the test split as a user would: from files, with the promoted model."""
        from orchestration.demo.documents import export_documents, linked_examples
        from orchestration.link import link_file
        from training.report.pages import linked_page, write_page

        folder = self.workspace / "linked"
        source = export_documents(self.lake, f"{DATASET}@{version}", folder, split=Split.TEST, count=LINKED_DOCUMENTS)
        self.console.say(f"5/6 link: {LINKED_DOCUMENTS} documents with models:/{trained.model}@champion")
        output = folder / "links.parquet"
        linked = link_file(
            f"models:/{trained.model}@champion", source, output, [], tracking=self.tracking, say=self.console.say
        )
        self.console.say("6/6 draw: the linked documents as a page")
        return write_page(folder, linked_page(linked_examples(source, output), model=linked["model"]))


def summary_lines(run: DemoRun, scores: dict[str, Any], report: Path, linked: Path) -> list[str]:
    """Return the table and the three things to open next."""
    from training.evaluation.metrics.links import ScoreKind
    from training.report.sections import models_table, score_row

    rows = {"random": scores["AP"].means("random")} | {title: score.means() for title, score in scores.items()}
    table = models_table((score_row(title, means, ScoreKind.LINKS.metrics) for title, means in rows.items()))
    lines = ["", *table.lines()]
    server = f".venv/bin/mlflow ui --backend-store-uri {run.tracking}"
    return [
        *lines,
        "",
        "open next",
        f"  the report            {report}",
        f"  the runs and models   {server}   then http://127.0.0.1:5000",
        f"  the linked documents  {linked}",
    ]
