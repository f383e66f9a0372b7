from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.commands import options
from schemas.console import Console
from schemas.errors import UsageError
from schemas.lake import Lake


def command(
    output: Annotated[
        str, typer.Option(help="Folder to write: relinked documents, links and failures, a file a shard.")
    ],
    lake: Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Lake of the data set.")] = "",
    model: Annotated[
        str | None,
        typer.Option(help=f"{options.ADDRESSES}; with --dataset, the data set's champion by default."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION: relink what is in its shards.")] = None,
    input_path: Annotated[
        str | None, typer.Option("--input", metavar="PATH", help="Shard of a corpus, or a folder of them.")
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="Of --input: mmc4, obelics, interleaved, webdataset, hf, web or documents.")
    ] = "",
    splits: Annotated[list[str] | None, typer.Option("--split", help="train, val or test; all by default.")] = None,
    workers: Annotated[int, typer.Option(help="Shards linked at once; of --input, also workers of the build.")] = 1,
    settings: options.ReadingSettings = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a page of how far both agree, with documents in which they differ."),
    ] = None,
    calibration: options.Calibration = None,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Write documents with the links that a model predicts, with probabilities, beside those that they came with.

    Texts, images and given links stay as they are; `predicted_links` is added. What agrees is counted, against true
    links, too, where they are known. A shard is linked once: called again, the command goes on where it was.
    """
    say = Console().say
    if (input_path is None) == (dataset is None):
        raise UsageError("relink: expected either --input PATH with --format, or --dataset NAME")
    if input_path is not None and (model is None or not form):
        raise UsageError("--input: takes --model and --format beside it")
    if dataset is not None and (settings or form):
        raise UsageError("--set and --format: of --input alone; a data set's vectors are in its shards")
    if input_path is not None and model is not None:
        from orchestration.inference.corpora import build_corpus
        from training.mlflow.registry import load, open_registry

        data = load(model, open_registry(tracking, [model])).model.card.data
        dataset = build_corpus(data, form, input_path, settings or [], lake=Lake.at(lake), workers=workers, say=say)
        say(f"{input_path}: {dataset}")
    from training.report.relinking import agreement_lines
    from training.workflows.link import compare_links, run_link_version

    linked = run_link_version(
        model=model,
        dataset=str(dataset),
        lake=lake,
        output=output,
        splits=splits or (),
        workers=workers,
        calibration_path=calibration,
        tracking=tracking,
        with_documents=True,
        say=say,
    )
    agreement = compare_links(linked, lake, page)
    summary: dict[str, Any] = linked.to_json() | {"agreement": agreement.to_json(), "page": page and str(page)}
    lines = [f"{summary['documents']} documents, {summary['links']} predicted links: {summary['output']}"]
    failures = ", ".join(f"{reason} {count}" for reason, count in summary["failures"].items())
    lines += [f"failures: {failures}: {summary['output']}/failures"] if failures else []
    yield [*lines, *agreement_lines(agreement)], summary
