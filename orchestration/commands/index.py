from typing import Annotated

import typer

from orchestration.commands import options
from schemas.errors import UsageError
from schemas.lake import Lake


def command(
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

    The index is written to indexes/DATA SET/VERSION/MODEL in the lake, and holds all that a search needs. A repeated
    call reuses it; an index that was removed is written again, with equal bytes.
    """
    if (dataset is None) == (pictures is None):
        raise UsageError("index: expected either --dataset NAME or --pictures PATH")
    if pictures is not None and model is None:
        raise UsageError("--pictures: expected --model beside it")
    if settings and pictures is None:
        raise UsageError("--set works only with --pictures; the features of a data set are in its shards")
    if dataset is not None:
        dataset = options.known_dataset(lake, dataset)
    from newsroom.archive.build import build_index
    from training.mlflow.loading import open_model
    from training.promotions.made import Maker
    from training.workflows.workers import by_workers

    home, loaded = Lake.at(lake), open_model(model, tracking, dataset=dataset or "")
    if pictures is not None:
        from orchestration.inference.corpora import build_archive

        dataset = build_archive(loaded.model.card.data, pictures, settings or [], lake=home, say=say)
    maker = Maker.here()
    with by_workers(workers):
        made = build_index(
            loaded.model,
            home,
            dataset or "",
            uri=loaded.uri,
            name=loaded.index_name,
            sign=maker.sign,
            accepts=maker.accepts,
            say=say,
        )
    yield made.lines(), made
