"""A corpus or an archive of a user's own, built as a data set with the features that a model reads.

Reading and fetching are the pipeline's, resumable and by many workers; what is built is linked or indexed as any data
set version.
"""

from collections.abc import Sequence
from pathlib import Path

from pipelines.config import recipe
from pipelines.files import is_archive
from pipelines.run import build_dataset
from schemas.features import several
from schemas.lake import Lake
from schemas.messages import Say
from schemas.overrides import override
from training.data.loading import DatasetIdentity


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
    images = ",".join((*several(data.image_features), *several(data.region_features)))
    config = override(recipe(name), [f"features.images={images}", *settings])
    made = build_dataset(config, lake=lake, workers=workers, say=say).manifest
    return f"{made.dataset}@{made.version}"
