"""The command `evaluate`, and how an evaluation is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schemas.console import Console
from schemas.errors import UsageError

if TYPE_CHECKING:
    from training.commands import EvaluateSummary

FEW_DOCUMENTS = 10
TrackingOption = Annotated[
    str | None,
    typer.Option("--tracking-uri", help="MLflow's address; MLFLOW_TRACKING_URI, else ./mlflow.db, by default."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Columns and word vectors of the baselines; samples of retrieval."),
]


def register(app: typer.Typer) -> None:
    """Add this module's command to the one command."""
    app.command()(evaluate)


def evaluate(
    model: Annotated[
        str | None, typer.Option(help="models:/NAME/VERSION, models:/NAME@ALIAS, runs:/RUN/model or a folder.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION.")] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    lake: Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Path or URI of the lake.")] = "",
    report: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the HTML report to this folder.")] = None,
    scores: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Score matrices made elsewhere instead: JSON Lines.")
    ] = None,
    with_captions: Annotated[bool, typer.Option("--captions", help="Caption metrics, too; most need Java.")] = False,
    baseline: Annotated[
        str | None, typer.Option(help="Instead of a model: random, object-detection, joint-embeddings.")
    ] = None,
    with_baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="Score the baselines beside the model, too.")
    ] = True,
    settings: SetOption = None,
    tracking: TrackingOption = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")] = False,
) -> None:
    """Score a model's links on a data set: AUC and precision at 1 and 5, each with its 95% bootstrap interval.

    Retrieval, relations, calibration and the rest are measured where they apply, beside the baselines the data set
    carries what they need for; all numbers are kept as a table with the model's run and beside the report.

    With --scores, the matrices of a file are scored: one JSON line a document, {"id", "scores": [[...]], "links":
    [[sentence, image], ...]}.
    """
    console = Console(is_json=is_json)
    asked = {"--model": model, "--dataset": dataset, "--lake": lake, "--scores": scores, "--report": report}
    if settings and scores is not None:
        raise UsageError("--set: of the baselines and of retrieval, and a scores file has neither")
    from training.commands import run_baseline, run_evaluate, run_evaluate_scores

    if baseline is not None:
        _check(
            "evaluate --baseline", asked, needed=("--dataset", "--lake"), refused=("--model", "--scores", "--report")
        )
        summary = run_baseline(
            baseline=baseline, dataset=dataset or "", lake=lake, split=split, settings=settings or []
        )
    elif scores is not None:
        _check("evaluate --scores", asked, needed=(), refused=("--model", "--dataset", "--report"))
        summary = run_evaluate_scores(str(scores))
    else:
        _check("evaluate", asked, needed=("--model", "--dataset", "--lake"), refused=())
        from schemas.configs import override
        from training.evaluation.config import STANDARD_CONFIG

        summary = run_evaluate(
            model=model or "",
            dataset=dataset or "",
            lake=lake,
            split=split,
            tracking=tracking,
            config=override(STANDARD_CONFIG, settings or []),
            with_captions=with_captions,
            with_baselines=with_baselines,
            say=console.say,
        )
    lines, values = summary_lines(summary), summary.to_json()
    if report is not None:
        from training.reporting import run_report

        path = run_report(summary, lake=lake, directory=report, tracking=tracking)
        lines.append(f"report: {path}")
        values["report"] = str(path)
    console.summarise(lines, values)


def summary_lines(summary: EvaluateSummary) -> list[str]:
    """Return the scores as an aligned table, baselines and random below, what was left out, and the other tables."""
    from training.evaluation.rows import documents_of, left_out_of
    from training.report.sections import score_table, sections

    rows = summary.rows
    table = score_table(rows, "model")
    count, left_out = documents_of(rows), ", ".join(f"{lost} {reason}" for reason, lost in left_out_of(rows).items())
    lines = [*([] if table is None else table.lines()), f"{count} documents; left out: {left_out or 'none'}"]
    if count < FEW_DOCUMENTS:
        lines.append(f"the intervals are of fewer than {FEW_DOCUMENTS} documents: they are too narrow to go by")
    if summary.judged is not None:
        lines += [line for each in sections(rows).values() for line in ("", *each.lines())]
    return [*lines, *summary.notes]


def _check(command: str, asked: Mapping[str, object], *, needed: Sequence[str], refused: Sequence[str]) -> None:
    """Raise a UsageError where options do not go together."""
    missing, unwanted = [name for name in needed if not asked[name]], [name for name in refused if asked[name]]
    if missing:
        raise UsageError(f"{command}: expected {', '.join(missing)} as well")
    if unwanted:
        raise UsageError(f"{command}: expected no {', '.join(unwanted)}")
