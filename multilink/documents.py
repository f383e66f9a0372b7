"""The documents of a split, for PyTorch: an iterable data set, shard by shard, which workers of a loader share."""

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import IterableDataset, get_worker_info

from pipelines.exports.reading import read_shard
from schemas.features import column_to_vectors
from schemas.lake import Folder
from schemas.parts import Shard, read_part


class Documents(IterableDataset[dict[str, Any]]):
    """A dict a document: `id`, `language`, `sentences`, `images`, `links` and the wanted columns of features.

    `images` are m tensors (3 x height x width, uint8) of the 256-px copies, None without pixels; `links` is l x 2
    (sentence, image; int64), None where they are not known; a column of features is m x d, float32.

    Args:
        shards: of a split.
        folder: of the version.
        features: columns of the images' vectors, such as `features.efficientnet-lite0`.

    Raises:
        IntegrityError: while it is read: a file is damaged.
    """

    def __init__(self, shards: Sequence[Shard], folder: Folder, features: Sequence[str] = ()) -> None:
        self._shards, self._folder, self._features = shards, folder, list(features)

    def __len__(self) -> int:
        return sum(shard.documents.rows for shard in self._shards)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        for shard in self._shards if worker is None else self._shards[worker.id :: worker.num_workers]:
            yield from self._read(shard)

    def _read(self, shard: Shard) -> Iterator[dict[str, Any]]:
        table = read_part(self._folder, shard.images, ["hash", *self._features])
        row_of = {name: row for row, name in enumerate(table["hash"].to_pylist())}
        vectors = {name: column_to_vectors(table[name]).astype(np.float32) for name in self._features}
        for document in read_shard(shard, self._folder):
            links = document.row["links"]
            pairs = [(link["sentence"], link["image"]) for link in links or ()]
            rows = [row_of[picture["hash"]] for picture in document.pictures]
            yield {
                "id": document.row["id"],
                "language": document.row["language"],
                "sentences": [sentence["text"] for sentence in document.row["sentences"]],
                "images": [_pixels(picture["jpeg"]) for picture in document.pictures],
                "links": None if links is None else torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
                **{name: torch.from_numpy(values[rows]) for name, values in vectors.items()},
            }


def _pixels(jpeg: bytes | None) -> torch.Tensor | None:
    if jpeg is None:
        return None
    with Image.open(io.BytesIO(jpeg)) as image:
        return torch.from_numpy(np.asarray(image.convert("RGB")).copy()).permute(2, 0, 1)
