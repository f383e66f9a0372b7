"""Links of documents: predicted, reviewed by labels, measured, and served over HTTP."""

import textwrap
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from orchestration.commands import options
from orchestration.steps import link
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import BuildError, UsageError, counted


def link_command(
    output: Annotated[
        str, typer.Option(help="File to write the links to: .csv, .jsonl, or Parquet; with --dataset, a folder.")
    ],
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
    dataset: Annotated[
        str | None,
        typer.Option(help="NAME or NAME@VERSION: link the documents of a data set.", autocompletion=options.datasets),
    ] = None,
    lake: Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Lake of the data set.")] = "",
    splits: options.Splits = None,
    workers: Annotated[int, typer.Option(help="With --dataset: number of shards linked at the same time.")] = 1,
    settings: options.ReadingSettings = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --input: write an HTML page of the first 200 documents to this folder."),
    ] = None,
    fit: options.Fit = True,
    links: options.Links = options.link_settings,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Predict links with a trained model, of your own documents (--input) or of a data set version (--dataset).

    Documents and images that cannot be used are listed in `<name>.failures.parquet` in the folder of OUTPUT, or in
    `failures/` of the folder. Each shard of a data set is linked once: a repeated call continues.
    """
    if (input_path is None) == (dataset is None):
        raise UsageError("link: expected either --input PATH or --dataset NAME")
    if dataset is not None:
        if settings or page is not None:
            raise UsageError("--set and --page work only with --input; the vectors of a data set are in its shards")
        linked = link(
            say,
            dataset=options.known_dataset(lake, dataset),
            output=output,
            model=model,
            splits=tuple(splits or ()),
            links=replace(links(), fit=fit),
            lake=lake,
            tracking_uri=tracking,
            workers=workers,
        )
        summary = linked.to_json()
    else:
        if model is None or input_path is None or splits or workers != 1:
            raise UsageError("--input: expected --model as well, and no --split or --workers")
        from orchestration.inference.documents import link_file

        chosen = replace(links(), fit=fit).options()
        summary = link_file(
            model, input_path, Path(output), settings or (), options=chosen, page=page, tracking=tracking, say=say
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
    lines += [
        f"no percentage for {counted(count, 'document')}: {why}" for why, count in summary.get("cautions", {}).items()
    ]
    if summary.get("fitted"):
        lines.append(f"chosen on these documents: {summary['fitted']}")
    if summary.get("page"):
        lines.append(f"page: {summary['page']}")
    return [*lines, *options.failure_lines(summary)]


def _example(
    *, text: str, source: str, similarity: float, probability: float | None, word: str | None, **_: Any
) -> str:
    """Return a link in a line: similarity, probability or the word in its place, sentence and image."""
    sure = word if probability is None else f"{probability:.0%}"
    shown = f"{similarity:5.2f}" + ("" if sure is None else f" {sure:6}")
    return f"  similarity {shown}  {textwrap.shorten(text, 50, placeholder='...'):50}  {source}"


def relink_command(
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
    fit: options.Fit = True,
    links: options.Links = options.link_settings,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Write documents with predicted links and their probabilities in addition to the links of the corpus.

    Texts, images and the links of the corpus do not change; `predicted_links` is added. The summary has the agreement
    of both, and the precision of each if true links are known. Each shard is linked once: a repeated call continues.
    """
    _check(input_path, dataset, model=model, form=form, settings=settings)
    from training.mlflow.loading import open_model
    from training.workflows.link import compare_links, run_link_version
    from training.workflows.workers import by_workers

    home, reference = Lake.at(lake), "" if dataset is None else options.known_dataset(lake, dataset)
    loaded = open_model(model, tracking, dataset=reference)
    if input_path is not None:
        from orchestration.inference.documents import build_corpus

        data = loaded.model.card.data
        reference = build_corpus(data, form, input_path, settings or [], lake=home, workers=workers, say=say)
        say(f"{input_path}: {reference}")
    chosen = replace(links(), fit=fit).options()
    with by_workers(workers):
        linked = run_link_version(
            loaded, home, reference, output, splits=splits or (), options=chosen, with_documents=True, say=say
        )
    found = compare_links(linked, loaded.linker(chosen), home)
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
        raise UsageError("--input: expected --model and --format as well")
    if dataset is not None and (settings or form):
        raise UsageError("--set and --format work only with --input; the vectors of a data set are in its shards")


def label_command(
    model: Annotated[str, typer.Argument(help="Model whose links are measured: its name, NAME-VERSION or address.")],
    dataset: options.Dataset,
    lake: options.LakePath,
    count: Annotated[int, typer.Option(min=1, max=5000, help="Number of pictures to label.")] = 50,
    by: Annotated[str, typer.Option(metavar="WHO", help="Name of the person who labels.")] = "",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the sample; people with the same seed label the same pictures.")
    ] = 0,
    port: options.PagesPort = options.PAGES_PORT,
    store: options.Store = "",
) -> options.Summaries:
    """Label a random sample of a version's pictures: which sentence goes with each?

    Prints the address of the page, which shows no scores, and serves until Ctrl-C. `multilink measure` computes the
    result.
    """
    from newsroom.decisions.database import database_in
    from newsroom.labels.label_sample import links_by
    from newsroom.labels.linked import link_sets, outcomes
    from newsroom.pages.app import run_pages
    from newsroom.pages.state import PagesSettings

    manifest, _ = read_manifest(Lake.at(lake), dataset)
    links = links_by(link_sets(Lake.at(lake), manifest), model)
    outcomes(links)
    path = f"/labels/{quote(manifest.dataset)}/{quote(manifest.version)}/{quote(links.name)}"
    query = urlencode({"count": count, "seed": seed} | ({"by": by} if by else {}))
    for _, values in run_pages(PagesSettings(lake=lake, store=store or database_in(lake), port=port)):
        page = f"{values['address']}{path}?{query}"
        yield [f"{page}, until Ctrl-C"], {"address": values["address"], "page": page}


def measure_command(
    model: Annotated[str, typer.Argument(help="Model whose links are measured: its name, NAME-VERSION or address.")],
    dataset: options.Dataset,
    lake: options.LakePath,
    precision: Annotated[
        float | None, typer.Option(min=0, max=1, help="Find the threshold whose links have at least this precision.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the labelled sample.")] = 0,
    name: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Write the labelled images as this data set, too.")
    ] = "",
    store: options.Store = "",
    *,
    say: options.Progress,
) -> options.Summaries:
    """State precision and recall of all links of a version, by the labels of a random sample (`multilink label`).

    With --as, the labelled images and people's links become a data set for the gate, evaluate and calibration.
    """
    from newsroom.decisions.store import open_store
    from newsroom.labels.label_sample import answered, labels_of, links_by, reported
    from newsroom.labels.linked import link_sets
    from pipelines.exports.subset import write_labelled

    home = Lake.at(lake)
    manifest, folder = read_manifest(home, dataset)
    links = links_by(link_sets(home, manifest), model)
    with open_store(lake, store) as log:
        given = answered(links, manifest, folder, log, seed=seed)
    report = reported(*given, wanted=precision)
    if not name:
        yield report.lines(), report
        return
    written = write_labelled(home, manifest, folder, labels_of(*given), name, say=say)
    counts = ", ".join(f"{split} {each.documents}" for split, each in written.splits.items())
    yield [*report.lines(), f"{written.reference}: {counts} documents"], asdict(report) | {"as": written.reference}


def serve_command(
    model: Annotated[str, typer.Option(help=f"{options.ADDRESSES}.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; everybody who can reach it is served.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.")] = 5050,
    links: options.Links = options.link_settings,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Answer documents with their links over HTTP, until interrupted.

    A request has the inputs of the model: sentences, and vectors of its extractors or pictures. `multilink link
    --input` reads raw documents.
    """
    from training.mlflow.serving import run_serve

    yield from run_serve(model=model, host=host, port=port, options=links().options(), tracking=tracking)
