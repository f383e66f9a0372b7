"""Archives of pictures: made searchable, searched, judged, and shown in the pages."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options
from orchestration.steps import index
from schemas.documents import UNDETERMINED, Split
from schemas.lake import Lake
from schemas.messages import UsageError


def index_command(
    lake: options.LakePath,
    model: options.ModelOrChampion = None,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION: index its pictures.")] = None,
    pictures: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Instead: a folder, a tar or a zip of pictures, or JSON Lines of an archive. It is built first, as "
            "the data set `archive`, with the features that the model reads.",
        ),
    ] = None,
    settings: options.ReadingSettings = None,
    workers: options.ShardWorkers = 1,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Make the pictures of a data set version, or of an archive, searchable by a model.

    The index is written to indexes/DATA SET/VERSION/MODEL in the lake. A repeated call reuses it; a removed index is
    written again, with equal bytes.
    """
    if (dataset is None) == (pictures is None):
        raise UsageError("index: expected either --dataset NAME or --pictures PATH")
    if pictures is not None and model is None:
        raise UsageError("--pictures: expected --model as well, found none")
    if settings and pictures is None:
        raise UsageError("--set works only with --pictures; the features of a data set are in its shards")
    if dataset is not None:
        dataset = options.known_dataset(lake, dataset)
    made = index(
        say,
        lake=lake,
        model=model,
        dataset=dataset or "",
        pictures=pictures,
        settings=tuple(settings or ()),
        workers=workers,
        tracking_uri=tracking,
    )
    yield made.lines(), made


def search_command(
    index_path: options.IndexPath,
    headline: Annotated[str, typer.Option(help="Headline of the article.")] = "",
    lead: Annotated[str, typer.Option(help="Lead of the article.")] = "",
    caption: Annotated[str, typer.Option(help="Text that describes the picture.")] = "",
    body: Annotated[str, typer.Option(help="Text of the article.")] = "",
    language: Annotated[str, typer.Option(help="Language of the texts, such as de.")] = UNDETERMINED,
    image: Annotated[
        str | None, typer.Option(metavar="FILE", help="Path or URL of a picture; similar ones are found.")
    ] = None,
    like: Annotated[list[str] | None, typer.Option(metavar="HASH", help="More like this picture of the index.")] = None,
    unlike: Annotated[list[str] | None, typer.Option(metavar="HASH", help="Less like this picture.")] = None,
    entity: Annotated[
        list[str] | None, typer.Option(help="Only pictures whose metadata contain this name; may be repeated.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD OP VALUE",
            help="Condition on pictures, such as date>=2019-05, credit=dpa, place~Berlin.",
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of pictures.")] = 20,
    rank_by: Annotated[
        str | None,
        typer.Option(
            help="visual, lexical or fused; by default the one that found the pictures of validation texts best."
        ),
    ] = None,
    refine: options.Refine = options.refinement,
    settings: options.ReadingSettings = None,
) -> options.Summaries:
    """Rank the pictures of an index for a text, a picture, or both.

    The table has the cosine and, for a search by similarity alone, the probability by searches for validation texts in
    this index. Below it are the weights of the texts, if the model fuses several, and the relations to expect,
    if it predicts any. Filters act before ranking.
    """
    from newsroom.search.archive import Archive
    from newsroom.search.search import RankBy

    if rank_by is not None and rank_by not in list(RankBy):
        raise UsageError(f"--rank-by {rank_by}: expected one of {', '.join(RankBy)}")
    with Archive(index_path, settings or []) as archive:
        found = archive.search(
            headline=headline, lead=lead, caption=caption, body=body, language=language,
            image=image, like=like or (), unlike=unlike or (), where=where or (), entities=entity or (),
            top=top, rank_by=None if rank_by is None else RankBy(rank_by),
            refine=refine(),
        )  # fmt: skip
    yield found.lines(), asdict(found)


def evaluate_search_command(
    index_path: options.IndexPath,
    lake: options.LakePath,
    split: options.Split = Split.TEST,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write evaluation.parquet."),
    ] = None,
    settings: options.ReadingSettings = None,
) -> options.Summaries:
    """Measure how well the texts of a split find their pictures: MRR, recall at 5, 10, 50, 100, by role and language.

    The model is compared with BM25 on the pictures' titles and captions, and the fusion of both.
    """
    from newsroom.search.evaluate import score_lines
    from orchestration.workflows.search_evaluation import evaluate_archive

    report, queries = evaluate_archive(index_path, Lake.at(lake), split, settings or [], output=output)
    yield (
        score_lines(report),
        {
            "model": report.model,
            "dataset": f"{report.dataset}@{report.dataset_version}",
            "split": split,
            "queries": queries,
            "scores": report.values(),
        },
    )


def pages_command(
    lake: options.LakePath,
    indexes: Annotated[
        list[str] | None,
        typer.Option(
            "--index", help="Folder that `multilink index` printed; may be repeated. All of the lake's by default."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other ones than loopback need --token or --user-header.")
    ] = "127.0.0.1",
    port: options.PagesPort = options.PAGES_PORT,
    token: Annotated[
        str,
        typer.Option(envvar="MULTILINK_PAGES_TOKEN", help="Token that visitors must enter; safer in the environment."),
    ] = "",
    user_header: Annotated[
        str, typer.Option(metavar="NAME", help="Instead of a token: the header in which a reverse proxy names a user.")
    ] = "",
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="Path below which a reverse proxy shows the pages, such as /newsroom.")
    ] = "",
    processes: Annotated[int, typer.Option(min=1, help="Searches at once, each in a process of 150 to 500 MB.")] = min(
        2, os.cpu_count() or 1
    ),
    keep_days: Annotated[
        int, typer.Option(min=0, help="Days after which uploads and texts without a decision are removed; 0: never.")
    ] = options.KEEP_DAYS,
    store: options.Store = "",
    settings: options.ReadingSettings = None,
    tracking: options.KnownTracking = None,
) -> options.Summaries:
    """Show the newsroom's pages: search an archive for an article, look at links and data sets.

    Serves until Ctrl-C. On loopback no login is required; other addresses need a token or a proxy's header.
    """
    from newsroom.decisions.database import database_in
    from newsroom.pages.app import run_pages
    from newsroom.pages.state import PagesSettings

    yield from run_pages(
        PagesSettings(
            lake=lake,
            indexes=tuple(indexes or ()),
            store=store or database_in(lake),
            tracking=tracking,
            host=host,
            port=port,
            token=token,
            user_header=user_header,
            root_path=root_path,
            processes=processes,
            keep_days=keep_days,
            reading=tuple(settings or ()),
        )
    )
