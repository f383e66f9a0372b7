from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.commands import options
from schemas.errors import BuildError, UsageError


def command(
    output: Annotated[str, typer.Option(help="Parquet file to write the links to; with --dataset, a folder.")],
    model: options.ModelOrChampion = None,
    input_path: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            callback=options.existing_file,
            help="Documents as JSON Lines, with image paths or URLs.",
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION: link the documents of a data set.")] = None,
    lake: Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Lake of the data set.")] = "",
    splits: options.Splits = None,
    workers: Annotated[int, typer.Option(help="With --dataset: number of shards linked at the same time.")] = 1,
    settings: options.ReadingSettings = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --input: write an HTML page of the first 200 documents to this folder."),
    ] = None,
    links: options.Links = options.link_options,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Predict links with a trained model: of a user's own documents (--input), or of a data set version (--dataset).

    Documents and images that cannot be used are listed in `<name>.failures.parquet` beside OUTPUT, or in `failures/` of
    the folder. Each shard of a data set is linked once: a repeated call continues.
    """
    if (input_path is None) == (dataset is None):
        raise UsageError("link: expected either --input FILE or --dataset NAME")
    options.check_model(model, tracking)
    if dataset is not None:
        if settings or page is not None:
            raise UsageError(
                "--set and --page: expected --input beside them; the vectors of a data set are in its shards"
            )
        reference = options.known_dataset(lake, dataset)
        from training.workflows.link import run_link_version

        summary = run_link_version(
            model=model, dataset=reference, lake=lake, output=output, splits=splits or (), workers=workers,
            options=links(), tracking=tracking, say=say,
        ).to_json()  # fmt: skip
    else:
        if model is None or input_path is None or splits or workers != 1:
            raise UsageError("--input: expected --model beside it, and no --split or --workers")
        from orchestration.inference.documents import link_file

        summary = link_file(
            model, input_path, Path(output), settings or (), options=links(), page=page, tracking=tracking, say=say
        ).to_json()
    yield _lines(summary), summary
    if input_path is not None and not summary["documents"]:
        raise BuildError(f"none of the documents of {input_path} could be linked")


def _lines(summary: dict[str, Any]) -> list[str]:
    """Return what was linked, of a data set with its shards, and what could not be."""
    shards, reused = summary.get("shards", 0), summary.get("shards_reused", 0)
    done = f" ({shards - reused} shards linked{f', {reused} reused' if reused else ''})" if shards else ""
    pace = f" in {summary['seconds']:.1f} s, {summary['documents_per_second']:.1f} documents/s"
    about = done + (pace if reused < shards or not shards else "")
    lines = [f"{summary['links']} links of {summary['documents']} documents{about}: {summary['output']}"]
    if summary.get("page"):
        lines.append(f"page: {summary['page']}")
    return [*lines, *options.failure_lines(summary)]
