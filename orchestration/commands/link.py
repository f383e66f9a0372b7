from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.commands import options
from schemas.console import Console
from schemas.errors import BuildError, UsageError

if TYPE_CHECKING:
    from training.metrics.relations import RefineConfig


def command(
    output: Annotated[str, typer.Option(help="Parquet file of links to write; of a data set, the folder.")],
    model: Annotated[
        str | None,
        typer.Option(help=f"{options.ADDRESSES}; with --dataset, the data set's champion by default."),
    ] = None,
    input_path: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            callback=options.is_there,
            help="Documents as JSON Lines, with image paths or URLs.",
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION: link what is in its shards.")] = None,
    lake: Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Lake of the data set.")] = "",
    splits: Annotated[
        list[str] | None, typer.Option("--split", help="Of a data set: train, val or test; all by default.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Of a data set: shards linked at once.")] = 1,
    settings: options.ReadingSettings = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Of --input: draw the links as an HTML page in this folder, the first 200."),
    ] = None,
    precision: Annotated[
        float | None, typer.Option(help="Only the links of which this share is to be true, such as 0.9.")
    ] = None,
    calibration: options.Calibration = None,
    refine_below: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            help="Of models of relations: choose by similarities refined where a text's two largest differ by less.",
        ),
    ] = None,
    refine_weight: Annotated[
        float, typer.Option(metavar="LAMBDA", help="Of that refinement; 0: 0.12 for clue, 0.13 for others.")
    ] = 0.0,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Predict links with a trained model: of a user's own documents (--input), or of a data set version (--dataset).

    Documents and images that cannot be used become rows of OUTPUT's neighbour, `<name>.failures.parquet`, or of the
    folder's `failures/`. A data set's shards are linked once: called again, the command goes on where it was.
    """
    if (input_path is None) == (dataset is None):
        raise UsageError("link: expected either --input FILE or --dataset NAME")
    refine = refinement(refine_below, refine_weight)
    if dataset is not None:
        if settings or page is not None:
            raise UsageError("--set and --page: of --input alone; a data set's vectors are in its shards")
        reference = options.known_dataset(lake, dataset)
        for split in splits or ():
            options.known_split(split)
        from training.workflows.link import run_link_version

        summary = run_link_version(
            model=model,
            dataset=reference,
            lake=lake,
            output=output,
            splits=splits or (),
            workers=workers,
            precision=precision,
            refine=refine,
            calibration_path=calibration,
            tracking=tracking,
            say=Console().say,
        ).to_json()
    else:
        if model is None or input_path is None or splits or workers != 1:
            raise UsageError("--input: takes --model beside it, no --split or --workers")
        from orchestration.inference.documents import link_file

        summary = link_file(
            model,
            input_path,
            Path(output),
            settings or [],
            page=page,
            precision=precision,
            refine=refine,
            calibration_path=calibration,
            tracking=tracking,
            say=Console().say,
        )
    yield _lines(summary), summary
    if input_path is not None and not summary["documents"]:
        raise BuildError(f"none of the documents of {input_path} could be linked")


def refinement(below: float | None, weight: float) -> RefineConfig | None:
    if below is None:
        if weight:
            raise UsageError("--refine-weight: expected --refine-below beside it")
        return None
    from training.metrics.relations import RefineConfig

    return RefineConfig(below=below, weight=weight)


def _lines(summary: dict[str, Any]) -> list[str]:
    """Return what was linked, of a data set with its shards, and what could not be."""
    shards, reused = summary.get("shards", 0), summary.get("shards_reused", 0)
    done = f" ({shards - reused} shards linked{f', {reused} reused' if reused else ''})" if shards else ""
    pace = f" in {summary['seconds']:.1f} s, {summary['documents_per_second']:.1f} documents/s"
    about = done + (pace if reused < shards or not shards else "")
    lines = [f"{summary['links']} links of {summary['documents']} documents{about}: {summary['output']}"]
    reasons = ", ".join(f"{reason} {count}" for reason, count in summary["failures"].items())
    where = summary.get("failures_path", f"{summary['output']}/failures")
    if summary.get("page"):
        lines.append(f"page: {summary['page']}")
    return [*lines, f"failures: {reasons}: {where}"] if reasons else lines
