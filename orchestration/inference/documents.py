"""The links of a user's own documents, which the pipeline's extractors read.

A corpus or an archive is built as a data set with the features that a model reads. Reading and fetching are the
pipeline's, resumable and by many workers; what is built is linked or indexed as any data set version.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from newsroom.search.reader import DocumentReader
from pipelines.config import recipe
from pipelines.files import is_archive
from pipelines.recipe import BuildConfig
from pipelines.sources.records import with_addresses
from pipelines.sources.source import Outcomes, image_root, with_inputs
from schemas.features import several
from schemas.lake import Folder, Lake
from schemas.messages import Say, UsageError
from schemas.overrides import override
from training.data.loading import DatasetIdentity
from training.evaluation.models import CLASS_NAMES
from training.linking.links import DEFAULT_OPTIONS, LinkOptions
from training.promotions.loaded import LoadedModel, class_names
from training.workflows.link import LinkSummary, run_link


def link_file(
    model: str,
    source: str,
    output: Path,
    settings: Sequence[str] = (),
    *,
    options: LinkOptions = DEFAULT_OPTIONS,
    page: Path | None = None,
    tracking: str | None = None,
    say: Say,
) -> LinkSummary:
    """Link the documents of a file, a folder or an archive (`pipelines.sources.datasets.documents`); see `run_link`.

    Args:
        model: its address.
        source: what `source.documents` of a build may be.
        output: file of the links.
        settings: `key=value` of the `documents` recipe.
        options: how links are chosen, and what they carry.
        page: folder of a page that draws the first documents; None: none is drawn.
        tracking: MLflow's address.
        say: takes a line of progress.

    Raises:
        UsageError: the model is not there, reads features that no extractor here makes, or cannot link with these
            options.
    """
    if output.is_dir() or (output.exists() and Path(source).exists() and output.samefile(source)):
        raise UsageError(f"--output {output}: expected a file other than the input, found the input or a folder")
    loaded = opened(model, tracking)
    say(f"linking {source} with {loaded.uri}")
    with tempfile.TemporaryDirectory(prefix="multilink-link-") as scratch:
        config, records = own_documents(source, settings, Folder(scratch), say=say)
        reader = DocumentReader(loaded.model.card, config, Folder(scratch), with_pictures=page is not None)
        documents = reader.read(records, files=image_root(config.source))
        return run_link(loaded=loaded, documents=documents, output=output, options=options, page=page, say=say)


def opened(address: str, tracking: str | None) -> LoadedModel:
    """Return the model at an address; raises as `training.mlflow.loading.open_model` does.

    MLflow, a fifth of the time that `link` needs to begin, is imported where a registry may be asked.
    """
    if address == CLASS_NAMES:
        return class_names()
    from training.mlflow.loading import open_model

    return open_model(address, tracking)


def own_documents(source: str, settings: Sequence[str], scratch: Folder, *, say: Say) -> tuple[BuildConfig, Outcomes]:
    """Return the settings that a user's documents are read by, and the documents, as a build reads them.

    Raises:
        UsageError: the file is not there, or none of the files holds documents.
    """
    config = override(recipe("documents"), [f"source.documents={source}", *settings])
    config, _ = with_inputs(config, Lake(scratch), say=say)
    return config, with_addresses(config.source.read(), config.source.images)


def build_corpus(
    data: DatasetIdentity, form: str, path: str, settings: Sequence[str], *, lake: Lake, workers: int, say: Say
) -> str:
    """Build a corpus, and return NAME@VERSION.

    Args:
        data: what the model was trained on.
        form: recipe of the build: format of the corpus.
        path: shard of the corpus, or a folder of them.
        settings: `key=value` of the build.
        lake: that the version is written to.
        workers: of the build.
        say: takes a line of progress.

    Raises:
        UsageError: there is no such corpus, or the model reads features that no extractor here makes.
        BuildError: the build failed.
    """
    read = [f"source.documents={path}", f"features.sentences={','.join(several(data.sentence_features))}"]
    return _build(data, form, [*read, *settings], lake=lake, workers=workers, say=say)


def build_archive(data: DatasetIdentity, pictures: str, settings: Sequence[str], *, lake: Lake, say: Say) -> str:
    """Build an archive (a folder, tar or zip of pictures, or JSON Lines); arguments and result as of `build_corpus`."""
    is_file = Path(pictures).is_file() and not is_archive(pictures)
    source = f"source.{'archive' if is_file else 'images'}={pictures}"
    return _build(data, "archive", [source, *settings], lake=lake, workers=1, say=say)


def _build(data: DatasetIdentity, name: str, settings: Sequence[str], *, lake: Lake, workers: int, say: Say) -> str:
    from pipelines.run import build_dataset  # brings Beam, a fifth of the time that `link` needs to begin

    images = ",".join((*several(data.image_features), *several(data.region_features)))
    config = override(recipe(name), [f"features.images={images}", *settings])
    made = build_dataset(config, lake=lake, workers=workers, say=say).manifest
    return f"{made.dataset}@{made.version}"
