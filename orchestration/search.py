"""The commands of a searchable archive: make an index, search it, measure how well that goes.

An archive of a user's own is built by the pipeline first; queries are read by its extractors (`queries.py`).
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemas.console import Console, Say, aligned
from schemas.documents import UNDETERMINED
from schemas.errors import NotFoundError, UsageError
from schemas.lake import Folder, Lake
from training import options

if TYPE_CHECKING:
    from training.evaluation.evaluate import EvaluationReport
    from training.mlflow.registry import LoadedModel
    from training.model import LinkModel
    from training.retrieval.build import BuiltIndex
    from training.retrieval.search import SearchResult

SHOWN_TEXT = 60  # characters of a picture's title or caption in the table
SEARCH_TAG = "multilink"


def _is_index(path: str) -> str:
    if not Folder(path).exists():
        raise NotFoundError(f"--index {path}: no folder is there")
    return path


IndexPath = Annotated[
    str,
    typer.Option("--index", callback=_is_index, help="Path or URI of the folder that `multilink index` printed."),
]


def index(
    lake: options.LakePath,
    model: Annotated[
        str | None, typer.Option(help="As for link; with --dataset, the data set's champion by default.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION whose pictures are to be found.")] = None,
    pictures: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Instead: a folder, a tar or a zip of pictures, or an archive's JSON Lines. It is built first, as the "
            "data set `archive`, with the features that the model reads.",
        ),
    ] = None,
    settings: options.ReadingSettings = None,
    calibration: options.Calibration = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Make the pictures of a data set version, or of an archive, searchable by a model.

    The index lies in the lake, under indexes/DATA SET/VERSION/MODEL, and holds all that a search needs. Called again,
    the command takes over what is there; what is removed is made anew, with equal bytes.
    """
    console = Console(is_json=is_json)
    if (dataset is None) == (pictures is None):
        raise UsageError("index: expected either --dataset NAME or --pictures PATH")
    if pictures is not None and model is None:
        raise UsageError("--pictures: takes --model beside it")
    if settings and pictures is None:
        raise UsageError("--set: of --pictures alone; a data set's features are in its shards")
    if dataset is not None:
        dataset = options.known_dataset(lake, dataset)
    from training.mlflow.registry import calibration_of, champion_of_dataset, load, open_registry
    from training.retrieval.build import build_index

    home, client = Lake.at(lake), open_registry(tracking, [model] if model else None)
    if model is None:
        model = champion_of_dataset(client, (dataset or "").partition("@")[0]).uri
    loaded = load(model, client)
    if pictures is not None:
        dataset = _build_archive(loaded.model, pictures, settings or [], home, console.say)
    made = build_index(
        loaded.model,
        home,
        dataset or "",
        uri=loaded.uri,
        name=_index_name(loaded),
        calibration=calibration_of(loaded, calibration),
        say=console.say,
    )
    console.summarise(_index_lines(made), {"path": made.folder.uri, "reused": made.is_reused, **_about(made)})


def _index_name(loaded: LoadedModel) -> str:
    """Return the name under which a model's indexes lie: of the registry, else of its weights."""
    if loaded.version is not None:
        return f"{loaded.version.name}-{loaded.version.version}"
    return f"model-{loaded.model.digest()[:12]}"


def _build_archive(model: LinkModel, pictures: str, settings: list[str], lake: Lake, say: Say) -> str:
    """Build a user's archive as a data set with the features that a model reads, and return NAME@VERSION."""
    from pipelines.config import recipe
    from pipelines.files import is_archive
    from pipelines.run import build_dataset
    from pipelines.sources.diy.submissions import Credentials
    from schemas.configs import override

    is_file = Path(pictures).is_file() and not is_archive(pictures)
    source = f"source.{'archive' if is_file else 'images'}={pictures}"
    names = (model.card.data.image_features, model.card.data.region_features)
    config = override(recipe("archive"), [source, *settings])
    config = replace(config, features=replace(config.features, images=tuple(filter(None, names))))
    summary = build_dataset(config, lake=lake, credentials=Credentials(), say=say)
    return f"{summary.manifest.dataset}@{summary.manifest.version}"


def _about(made: BuiltIndex) -> dict[str, Any]:
    manifest = made.manifest
    return {
        "model": manifest.model,
        "dataset": manifest.dataset,
        "images": manifest.images,
        "described": dict(manifest.described),
        "bytes": sum(entry.bytes for entry in manifest.files),
    }


def _index_lines(made: BuiltIndex) -> list[str]:
    manifest, cells = made.manifest, made.manifest.cells
    how = "searched exactly"
    if cells is not None:
        how = f"searched in {cells.probes} of {cells.cells} lists, recall {cells.recall:.3f} of {cells.measured_with}"
    described = ", ".join(f"{name} {count}" for name, count in manifest.described.items() if count) or "nothing"
    return [
        f"{'reused' if made.is_reused else 'made'}: {made.folder.uri}",
        f"{manifest.images} images of {manifest.dataset} by {manifest.model}, {how}",
        f"known of them: {described}",
    ]


def search(
    index_path: IndexPath,
    headline: Annotated[str, typer.Option(help="Headline of the article.")] = "",
    lead: Annotated[str, typer.Option(help="Its lead.")] = "",
    caption: Annotated[str, typer.Option(help="What the picture is to show.")] = "",
    body: Annotated[str, typer.Option(help="Its text.")] = "",
    language: Annotated[str, typer.Option(help="Of the texts, such as de.")] = UNDETERMINED,
    image: Annotated[
        str | None, typer.Option(metavar="FILE", help="A picture whose likes are wanted, or its URL.")
    ] = None,
    like: Annotated[list[str] | None, typer.Option(metavar="HASH", help="More like this picture of the index.")] = None,
    unlike: Annotated[list[str] | None, typer.Option(metavar="HASH", help="Less like this one.")] = None,
    entity: Annotated[
        list[str] | None, typer.Option(help="Only pictures of whose metadata this name is a part; may be given again.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD OP VALUE", help="Only pictures like date>=2019-05, credit=dpa, place~Berlin."),
    ] = None,
    top: Annotated[int, typer.Option(help="How many pictures.")] = 20,
    rank_by: Annotated[str, typer.Option(help="visual, lexical or fused.")] = "visual",
    refine_below: Annotated[
        float | None, typer.Option(metavar="T", help="Of models of relations: refine similarities, as for link.")
    ] = None,
    refine_weight: Annotated[float, typer.Option(metavar="LAMBDA", help="Of that refinement.")] = 0.0,
    trec: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the ranking as a TREC run, too, of a query named 1.")
    ] = None,
    settings: options.ReadingSettings = None,
    is_json: options.Json = False,
) -> None:
    """Rank the pictures of an index for a text, a picture, or both.

    Shown are the cosine, the probability by the model's calibration, the weight of each text where the model fuses
    several, and the relations to expect where it predicts any. Filters act before ranking.
    """
    console = Console(is_json=is_json)
    from orchestration.archive import Archive
    from orchestration.link import refinement
    from training.retrieval.search import RankBy

    if rank_by not in list(RankBy):
        raise UsageError(f"--rank-by {rank_by}: expected one of {', '.join(RankBy)}")
    with Archive(index_path, settings or []) as archive:
        found = archive.search(
            headline=headline,
            lead=lead,
            caption=caption,
            body=body,
            language=language,
            image=image,
            like=like or (),
            unlike=unlike or (),
            where=where or (),
            entities=entity or (),
            top=top,
            rank_by=RankBy(rank_by),
            refine=refinement(refine_below, refine_weight),
        )
    if trec is not None:
        rows = ((each.picture.image, each.rank, each.score) for each in found.images)
        lines = (f"1 Q0 {key} {rank} {score:.6f} {SEARCH_TAG}\n" for key, rank, score in rows)
        trec.write_text("".join(lines), encoding="utf-8")
    console.summarise(_search_lines(found), asdict(found))


def _search_lines(found: SearchResult) -> list[str]:
    """Return a ranking as a table, and what the model read and expects."""
    head = ("rank", "cosine", "probability", "words", "date", "image", "shown")
    rows = [
        (
            str(each.rank),
            f"{each.similarity:.3f}",
            "" if each.probability is None else f"{each.probability:.2f}",
            str(each.lexical_rank or ""),
            each.picture.metadata.date or "",
            each.picture.image[:16],
            (each.picture.metadata.title or each.picture.metadata.caption or each.picture.source or "")[:SHOWN_TEXT],
        )
        for each in found.images
    ]
    weights = [f"{source.role} {source.weight:.2f}" for source in found.sources if source.weight is not None]
    expected = [f"{name} {probability:.2f}" for name, probability in found.expected]
    return [
        f"{len(found.images)} of {found.searched} images",
        *(aligned([head, *rows]) if rows else []),
        *([f"weights: {', '.join(weights)}"] if weights else []),
        *([f"expect: {', '.join(expected)}" + (", refined by them" if found.is_refined else "")] if expected else []),
    ]


def evaluate_search(
    index_path: IndexPath,
    lake: options.LakePath,
    split: options.Split = "test",
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write evaluation.parquet, and run.txt and qrels.txt for trec_eval."),
    ] = None,
    settings: options.ReadingSettings = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Measure how well the texts of a split find their pictures: MRR, recall at 5, 10, 50, 100, by role and language.

    Beside the model stand BM25 on what is said of the pictures, the nearest of those texts by the sentence encoder, and
    the fusion of the model and BM25. With --tracking-uri the numbers are kept with the run of the index's model, too.
    """
    console = Console(is_json=is_json)
    from orchestration.archive import Archive
    from orchestration.queries import sentence_encoder
    from training.evaluation.evaluate import EvaluationReport
    from training.retrieval.evaluate import evaluate_search as evaluate_index

    with Archive(index_path, settings or []) as archive:
        found = evaluate_index(archive.index, Lake.at(lake), split, reader=archive.reader, encode=sentence_encoder())
        manifest = archive.index.manifest
    name, _, version = manifest.dataset.partition("@")
    report = EvaluationReport(
        model=manifest.model, model_version=None, dataset=name, dataset_version=version, split=split, rows=found.rows
    )
    if output is not None:
        report.write(output)
        found.write_trec(output, tag=SEARCH_TAG)
    values = {"model": manifest.model, "dataset": manifest.dataset, "split": split, "queries": len(found.queries)}
    if tracking is not None:
        from training.mlflow.registering import record_search
        from training.mlflow.registry import open_registry

        values["run_id"] = record_search(open_registry(tracking), manifest.model, report)
    console.summarise(_evaluation_lines(report), values | {"scores": report.values()})


def _evaluation_lines(report: EvaluationReport) -> list[str]:
    """Return a row a group and system, and why a system has no numbers."""
    from training.retrieval.evaluate import METRICS

    table: dict[tuple[str, str], dict[str, str]] = {}
    for row in report.rows:
        if row.metric in METRICS and row.value is not None:
            table.setdefault((row.group, row.measure), {})[row.metric] = (
                f"{row.value:.1f} [{row.low:.1f}, {row.high:.1f}]"
            )
    head = ("", "MRR", *(metric.replace("recall_at_", "R@") for metric in METRICS[1:]))
    rows = [
        (f"{group.partition(',')[0]}  {measure}", *(own[metric] for metric in METRICS))
        for (group, measure), own in sorted(table.items())
    ]
    told = [f"{row.measure}: {row.note}" for row in report.rows if row.note]
    return [
        f"{report.model} on {report.dataset}@{report.dataset_version}, {report.split}",
        *aligned([head, *rows]),
        *told,
    ]
