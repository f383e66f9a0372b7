"""The command `evaluate`, and how an evaluation is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schemas.console import Console
from schemas.errors import UsageError

if TYPE_CHECKING:
    from training.commands import EvaluateSummary
    from training.evaluation.bootstrap import Interval
    from training.evaluation.evaluate import MeanScores
    from training.evaluation.measures import Measures
    from training.evaluation.pair_scores import PairMeans
    from training.evaluation.retrieval import Statistic

FEW_DOCUMENTS = 10
TITLE_WIDTH, CELL_WIDTH = 18, 22
TrackingOption = Annotated[
    str | None,
    typer.Option("--tracking-uri", help="MLflow's address; MLFLOW_TRACKING_URI, else ./mlflow.db, by default."),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Of the baselines: word_vectors, columns.")
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
    if settings and (scores is not None or not with_baselines):
        raise UsageError("--set: of the baselines, and none is scored here")
    if baseline is not None:
        _check(
            "evaluate --baseline", asked, needed=("--dataset", "--lake"), refused=("--model", "--scores", "--report")
        )
        _evaluate_baseline(baseline, dataset or "", lake, split, settings or [], console=console)
        return
    if scores is not None:
        _check("evaluate --scores", asked, needed=(), refused=("--model", "--dataset", "--report"))
        _evaluate_scores(scores, console)
        return
    _check("evaluate", asked, needed=("--model", "--dataset", "--lake"), refused=())
    from schemas.configs import override
    from training.commands import STANDARD_BASELINES, run_evaluate

    summary = run_evaluate(
        model=model or "",
        dataset=dataset or "",
        lake=lake,
        split=split,
        tracking=tracking,
        with_captions=with_captions,
        baselines=override(STANDARD_BASELINES, settings or []) if with_baselines else None,
        say=console.say,
    )
    _print(summary, console, lake=lake, report=report, tracking=tracking)


def _check(command: str, asked: Mapping[str, object], *, needed: Sequence[str], refused: Sequence[str]) -> None:
    """Raise a UsageError where options do not go together."""
    missing, unwanted = [name for name in needed if not asked[name]], [name for name in refused if asked[name]]
    if missing:
        raise UsageError(f"{command}: expected {', '.join(missing)} as well")
    if unwanted:
        raise UsageError(f"{command}: expected no {', '.join(unwanted)}")


def _evaluate_baseline(
    baseline: str, dataset: str, lake: str, split: str, settings: Sequence[str], *, console: Console
) -> None:
    from training.study_commands import run_baseline

    found = run_baseline(baseline=baseline, dataset=dataset, lake=lake, split=split, settings=settings)
    console.summarise([*summary_lines(found.scores), *found.notes], found.to_json())


def _evaluate_scores(path: Path, console: Console) -> None:
    from training.commands import run_evaluate_scores

    summary = run_evaluate_scores(str(path))
    console.summarise(summary_lines(summary), summary.to_json())


def _print(summary: EvaluateSummary, console: Console, *, lake: str, report: Path | None, tracking: str | None) -> None:
    """Print a model's evaluation, and write its report where one is wanted."""
    lines, values = summary_lines(summary), summary.to_json()
    if report is not None:
        from training.reporting import run_report

        path = run_report(summary, lake=lake, directory=report, tracking=tracking)
        lines.append(f"report: {path}")
        values["report"] = str(path)
    console.summarise(lines, values)


def summary_lines(summary: EvaluateSummary) -> list[str]:
    """Return scores as an aligned table, random's below, what was left out, and the other measures in a line each."""
    from training.evaluation.evaluate import FULLY_LINKED

    evaluation = summary.evaluation
    lines = score_lines(summary)
    pairs = evaluation.pairs if evaluation.link_means is None else None
    count = len(evaluation.scored if pairs is None else pairs.documents)
    reasons = {reason: lost for reason, lost in evaluation.left_out.items() if pairs is None or reason != FULLY_LINKED}
    left_out = ", ".join(f"{lost} {reason}" for reason, lost in reasons.items()) or "none"
    lines.append(f"{count} documents; left out: {left_out}")
    if count < FEW_DOCUMENTS:
        lines.append(f"the intervals are of fewer than {FEW_DOCUMENTS} documents: they are too narrow to go by")
    return lines if summary.measures is None else [*lines, *measure_lines(summary.measures)]


def score_lines(summary: EvaluateSummary) -> list[str]:
    """Return the scores of links, or where there are none of retrieval, as an aligned table, the baselines below."""
    from training.evaluation.score_kinds import ScoreKind

    rows = _score_rows(summary)
    if not rows:
        return []
    kind = ScoreKind.PAIRS if summary.evaluation.link_means is None else ScoreKind.LINKS
    heads = " " * TITLE_WIDTH + "".join(title.rjust(CELL_WIDTH) for title in kind.metrics.values())
    return [heads, *(f"{title:{TITLE_WIDTH}}" + "".join(text.rjust(CELL_WIDTH) for text in row) for title, row in rows)]


def _score_rows(summary: EvaluateSummary) -> list[tuple[str, list[str]]]:
    """Return the title and the cells of the model, of each baseline and of random."""
    evaluation = summary.evaluation
    beside = [(found.name, _cells(found.means)) for found in summary.beside.scores]
    if evaluation.link_means is not None:
        return [("model", _cells(evaluation.mean)), *beside, ("random", _cells(evaluation.random))]
    if evaluation.pairs is not None:
        expected = [f"{value:.1f}" for value in astuple(evaluation.pairs.chance)]
        return [("model", _cells(evaluation.pairs.means())), *beside, ("random", expected)]
    return []


def _cells(means: MeanScores | PairMeans) -> list[str]:
    return [interval_text(getattr(means, item.name)) for item in fields(means)]


def measure_lines(measures: Measures) -> list[str]:
    """Return the other measures, a line each."""
    lines = []
    for name, rows in (("retrieval", measures.retrieval), ("refined", measures.refined)):
        for row in rows:
            recall = ", ".join(f"R@{cutoff} {found.value:.1f}" for cutoff, found in row.recall.items())
            pool = f"{row.samples} samples of {row.candidates:.0f}" if row.samples else f"pool of {row.candidates:.0f}"
            lines.append(f"{name} {row.direction}, {pool}: {recall}, median rank {rank_text(row.median_rank)}")
    for score in measures.relations:
        if score.average_precision is not None:
            lines.append(f"relation {score.name}: average precision {score.average_precision:.1f}")
    if measures.calibration is not None:
        for kept in measures.calibration.kept:
            at = "not reached" if kept.threshold is None else f"similarity {kept.threshold:.3f}, keeps {kept.kept:.1f}%"
            lines.append(f"links at {kept.wanted:.0%} precision: {at}")
    if measures.captions is not None:
        values = ", ".join(f"{name} {value:.1f}" for name, value in measures.captions.values.items())
        lines.append(f"captions of {measures.captions.images} images: {values or 'none'}")
        lines += [f"{name}: {reason}" for name, reason in measures.captions.absent.items()]
    return lines


def rank_text(found: Statistic) -> str:
    """Return a rank with its 95% bootstrap interval, where it has one."""
    return f"{found.value:g}" + ("" if found.low is None else f" ({found.low:g}-{found.high:g})")


def interval_text(interval: Interval) -> str:
    """Return a mean with its 95% bootstrap interval."""
    return f"{interval.mean:.1f} ({interval.low:.1f}-{interval.high:.1f})"
