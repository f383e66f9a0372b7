"""The command relink: documents of a data set version, or of a corpus, with a model's links beside their own.

A corpus becomes a data set version first, with the features that the model reads: reading and fetching are the
pipeline's, resumable and by many workers. Its shards are then linked as those of any version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.console import Console
from schemas.errors import UsageError
from schemas.lake import Lake
from training import options


def relink(
    output: Annotated[
        str, typer.Option(help="Folder to write: relinked documents, links and failures, a file a shard.")
    ],
    lake: Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Lake of the data set.")] = "",
    model: Annotated[
        str | None,
        typer.Option(
            help="models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), runs:/RUN/model or a folder; with "
            "--dataset, the data set's champion by default."
        ),
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
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Calibration of the model; its run's by default.")
    ] = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Write documents with the links that a model predicts, with probabilities, beside those that they came with.

    Texts, images and given links stay as they are; `predicted_links` is added. What agrees is counted, against true
    links, too, where they are known. A shard is linked once: called again, the command goes on where it was.
    """
    console = Console(is_json=is_json)
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
        dataset = build_corpus(
            data, form, input_path, settings or [], lake=Lake.at(lake), workers=workers, say=console.say
        )
        console.say(f"{input_path}: {dataset}")
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
        say=console.say,
    )
    agreement = compare_links(linked, lake, page)
    summary: dict[str, Any] = linked.to_json() | {"agreement": agreement.to_json(), "page": page and str(page)}
    lines = [f"{summary['documents']} documents, {summary['links']} predicted links: {summary['output']}"]
    failures = ", ".join(f"{reason} {count}" for reason, count in summary["failures"].items())
    lines += [f"failures: {failures}: {summary['output']}/failures"] if failures else []
    console.summarise([*lines, *agreement_lines(agreement)], summary)
