from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.console import counted
from schemas.errors import UsageError
from schemas.lake import Lake


def command(
    output: Annotated[
        str, typer.Option(help="Folder to write: relinked documents, links and failures, a file a shard.")
    ],
    lake: Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Lake of the data set.")] = "",
    model: options.ModelOrChampion = None,
    dataset: Annotated[
        str | None, typer.Option(help="NAME or NAME@VERSION: relink the documents of a data set.")
    ] = None,
    input_path: Annotated[
        str | None, typer.Option("--input", metavar="PATH", help="Shard of a corpus, or a folder of them.")
    ] = None,
    form: Annotated[
        str,
        typer.Option("--format", help="With --input: mmc4, obelics, interleaved, webdataset, hf, web or documents."),
    ] = "",
    splits: options.Splits = None,
    workers: Annotated[
        int, typer.Option(help="Number of shards linked at the same time; with --input, also of workers of the build.")
    ] = 1,
    settings: options.ReadingSettings = None,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write an HTML page of how far both agree, with documents in which they differ, to this folder.",
        ),
    ] = None,
    links: options.Links = options.link_options,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Write documents with the links that a model predicts, with probabilities, beside those that the corpus has.

    Texts, images and the corpus's own links are not changed; `predicted_links` is added. How far both agree is counted,
    and how many of each are true, where true links are known. A shard is linked once: a repeated call continues.
    """
    _check(input_path, dataset, model=model, form=form, settings=settings)
    from training.mlflow.loading import open_model
    from training.workflows.link import compare_links, run_link_version
    from training.workflows.workers import by_workers

    home, reference = Lake.at(lake), "" if dataset is None else options.known_dataset(lake, dataset)
    loaded = open_model(model, tracking, dataset=reference)
    if input_path is not None:
        from orchestration.inference.corpora import build_corpus

        data = loaded.model.card.data
        reference = build_corpus(data, form, input_path, settings or [], lake=home, workers=workers, say=say)
        say(f"{input_path}: {reference}")
    chosen = links()
    with by_workers(workers):
        linked = run_link_version(
            loaded, home, reference, output, splits=splits or (), options=chosen, with_documents=True, say=say
        )
    found = compare_links(linked, loaded.linker(chosen), home, page)
    summary = found.to_json()
    documents, predicted = counted(summary["documents"], "document"), counted(summary["links"], "predicted link")
    yield [f"{documents}, {predicted}: {summary['output']}", *options.failure_lines(summary), *found.lines()], summary


def _check(
    input_path: str | None, dataset: str | None, *, model: str | None, form: str, settings: list[str] | None
) -> None:
    """Raise a UsageError where options do not go together."""
    if (input_path is None) == (dataset is None):
        raise UsageError("relink: expected either --input PATH with --format, or --dataset NAME")
    if input_path is not None and (model is None or not form):
        raise UsageError("--input: expected --model and --format beside it")
    if dataset is not None and (settings or form):
        raise UsageError("--set and --format work only with --input; the vectors of a data set are in its shards")
