from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.commands import options
from schemas.console import Console
from schemas.errors import UsageError
from schemas.lake import Lake

if TYPE_CHECKING:
    from training.mlflow.registry import LoadedModel
    from training.retrieval.build import BuiltIndex


def command(
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
) -> options.Summaries:
    """Make the pictures of a data set version, or of an archive, searchable by a model.

    The index lies in the lake, under indexes/DATA SET/VERSION/MODEL, and holds all that a search needs. Called again,
    the command takes over what is there; what is removed is made anew, with equal bytes.
    """
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

    say = Console().say
    home, client = Lake.at(lake), open_registry(tracking, [model] if model else None)
    if model is None:
        model = champion_of_dataset(client, (dataset or "").partition("@")[0]).uri
    loaded = load(model, client)
    if pictures is not None:
        from orchestration.inference.corpora import build_archive

        dataset = build_archive(loaded.model.card.data, pictures, settings or [], lake=home, say=say)
    made = build_index(
        loaded.model,
        home,
        dataset or "",
        uri=loaded.uri,
        name=_index_name(loaded),
        calibration=calibration_of(loaded, calibration),
        say=say,
    )
    yield _index_lines(made), {"path": made.folder.uri, "reused": made.is_reused, **_about(made)}


def _index_name(loaded: LoadedModel) -> str:
    """Return the name under which a model's indexes lie: of the registry, else of its weights."""
    if loaded.version is not None:
        return f"{loaded.version.name}-{loaded.version.version}"
    return f"model-{loaded.model.digest()[:12]}"


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
