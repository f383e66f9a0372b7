import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.commands import options
from schemas.console import counted
from schemas.errors import BuildError, UsageError
from schemas.lake import Lake


def command(
    output: Annotated[str, typer.Option(help="Parquet file to write the links to; with --dataset, a folder.")],
    model: options.ModelOrChampion = None,
    input_path: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="PATH",
            callback=options.existing_path,
            help="Own documents: HTML, Markdown, EPUB, JSON Lines, or a folder.",
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
        raise UsageError("link: expected either --input PATH or --dataset NAME")
    if dataset is not None:
        if settings or page is not None:
            raise UsageError("--set and --page work only with --input; the vectors of a data set are in its shards")
        reference = options.known_dataset(lake, dataset)
        from training.mlflow.loading import open_model
        from training.workflows.link import run_link_version
        from training.workflows.workers import by_workers

        loaded = open_model(model, tracking, dataset=reference)
        with by_workers(workers):
            summary = run_link_version(
                loaded, Lake.at(lake), reference, output, splits=splits or (), options=links(), say=say
            ).to_json()
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
    links, documents = counted(summary["links"], "link"), counted(summary["documents"], "document")
    lines = [f"{links} of {documents}{about}: {summary['output']}"]
    lines += [_example(**link) for link in summary.get("examples", ())]
    lines += [f"no percentage for {counted(count, 'document')}: {why}" for why, count in summary["cautions"].items()]
    if summary.get("fitted"):
        lines.append(f"chosen on these documents: {summary['fitted']}")
    if summary.get("page"):
        lines.append(f"page: {summary['page']}")
    return [*lines, *options.failure_lines(summary)]


def _example(
    *, text: str, source: str, similarity: float, probability: float | None, word: str | None, **_: Any
) -> str:
    """Return a link in a line: similarity, probability or the word in its place, sentence and image."""
    sure = word or "" if probability is None else f"{probability:.0%}"
    return f"  similarity {similarity:5.2f} {sure:6}  {textwrap.shorten(text, 50, placeholder='...'):50}  {source}"
