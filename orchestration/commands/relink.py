from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.commands import options
from schemas.console import counted
from schemas.errors import UsageError
from schemas.lake import Lake

if TYPE_CHECKING:
    from training.linking.versions import LinkedVersion


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
    if input_path is not None and model is not None:
        from orchestration.inference.corpora import build_corpus
        from training.mlflow.loading import open_model

        data = open_model(model, tracking).model.card.data
        dataset = build_corpus(data, form, input_path, settings or [], lake=Lake.at(lake), workers=workers, say=say)
        say(f"{input_path}: {dataset}")
    from training.workflows.link import run_link_version

    linked = run_link_version(
        model=model, dataset=str(dataset), lake=lake, output=output, splits=splits or (), workers=workers,
        options=links(), tracking=tracking, with_documents=True, say=say,
    )  # fmt: skip
    yield _compared(linked, lake, page, tracking)


def _compared(
    linked: "LinkedVersion", lake: str, page: Path | None, tracking: str | None
) -> tuple[list[str], dict[str, Any]]:
    """Return how far the links agree with the corpus's own, and what the model's are worth there."""
    from training.mlflow.loading import open_model
    from training.report.relinking import agreement_lines, caution_line
    from training.workflows.link import compare_links, estimate_false

    agreement, used = compare_links(linked, lake, page), open_model(linked.manifest.model, tracking).model
    trained_on = used.card.data
    caution = caution_line(f"{trained_on.dataset}@{trained_on.version}", linked.manifest.dataset)
    summary: dict[str, Any] = linked.to_json() | {"agreement": agreement.to_json(), "page": page and str(page)}
    summary |= {"trained_on": f"{trained_on.dataset}@{trained_on.version}"}
    if not agreement.judged:
        false = estimate_false(used, linked, lake)
        summary |= {"false_share_at_least": false.false_share}
        caution = f"{caution}\n{false.line()}"
    documents, predicted = counted(summary["documents"], "document"), counted(summary["links"], "predicted link")
    lines = [f"{documents}, {predicted}: {summary['output']}", caution]
    return [*lines, *options.failure_lines(summary), *agreement_lines(agreement)], summary


def _check(
    input_path: str | None, dataset: str | None, *, model: str | None, form: str, settings: list[str] | None
) -> None:
    """Raise a UsageError where options do not go together."""
    if (input_path is None) == (dataset is None):
        raise UsageError("relink: expected either --input PATH with --format, or --dataset NAME")
    if input_path is not None and (model is None or not form):
        raise UsageError("--input: expected --model and --format beside it")
    if dataset is not None and (settings or form):
        raise UsageError(
            "--set and --format: expected --input beside them; the vectors of a data set are in its shards"
        )
