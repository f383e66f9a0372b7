"""A data set version for programs: its tables as Arrow, its vectors as tensors, its documents for other libraries.

data = multilink.open_dataset("diy", lake="lake")
documents = data.table("documents", split="train", columns=["id", "sentences", "images"])
for batch in data.batches("images", split="train", columns=["hash", "features.efficientnet-lite0"], rows=256):
    vectors = batch["features.efficientnet-lite0"]        # a tensor, 256 x 1280
data.huggingface("train")[0]["images"]                    # pictures
for document in data.torch("train", features=["features.efficientnet-lite0"]): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from schemas.documents import Split
from schemas.features import column_to_vectors
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import UsageError
from schemas.parts import Shard, read_part, split_parts

if TYPE_CHECKING:
    import datasets
    from torch import Tensor

    from multilink.documents import Documents

FEATURES = "features."


@dataclass(frozen=True, slots=True, repr=False)
class Dataset:
    """A version of a data set.

    Attributes:
        manifest: of the version, with its files.
        folder: of the version.
    """

    manifest: Manifest
    folder: Folder

    def __repr__(self) -> str:
        documents = ", ".join(f"{name} {self.manifest.splits[name].documents:,}" for name in self.splits)
        return f"<multilink.Dataset {self.manifest.dataset}@{self.manifest.version}: {documents} documents>"

    @property
    def splits(self) -> list[str]:
        return sorted(name for name, split in self.manifest.splits.items() if split.documents)

    def parts(self, table: str, *, split: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Return the files of a table in a split, in order, each checked against the manifest.

        Args:
            table: `documents` or `images`.
            split: train, val or test.
            columns: their names; None: all.

        Raises:
            IntegrityError: a file is damaged.
        """
        return (read_part(self.folder, entry, columns) for entry in self.manifest.parts(table, split))

    def table(self, table: str, *, split: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a whole table of a split; arguments as of `parts`."""
        return pa.concat_tables(self.parts(table, split=split, columns=columns))

    def batches(
        self, table: str, *, split: str, columns: Sequence[str], rows: int = 256
    ) -> Iterator[dict[str, Tensor | list[Any]]]:
        """Yield batches of at most `rows` rows of a table: columns of vectors as float32 tensors, others as lists.

        Arguments as of `parts`.
        """
        import torch

        for part in self.parts(table, split=split, columns=columns):
            for piece in part.combine_chunks().to_batches(rows):
                yield {
                    name: torch.from_numpy(column_to_vectors(piece[name]).astype("float32"))
                    if name.startswith(FEATURES) and table == "images"
                    else piece[name].to_pylist()
                    for name in columns
                }

    def huggingface(self, split: str) -> datasets.Dataset:
        """Return the documents of a split as a Hugging Face data set: a row a document, pictures decoded on access.

        The columns are those of `multilink datasets export --to hf`. The rows are written to the cache of `datasets`,
        once, and mapped from there.

        Raises:
            UsageError: `datasets` is not installed, or there is no such split.
            IntegrityError: a file is damaged.
        """
        try:
            import datasets
        except ImportError as problem:
            raise UsageError("huggingface: expected the package `datasets`: pip install datasets") from problem
        from pipelines.exports.formats import ROW_SCHEMA, document_row
        from pipelines.exports.reading import read_shard

        shards, folder = self._shards(split), self.folder

        def rows() -> Iterator[dict[str, Any]]:
            yield from (document_row(document) for shard in shards for document in read_shard(shard, folder))

        made: datasets.Dataset = datasets.Dataset.from_generator(
            rows,
            features=datasets.Features.from_arrow_schema(ROW_SCHEMA),
            fingerprint=f"multilink-{self.manifest.dataset}-{self.manifest.version}-{split}",
        )
        return made

    def torch(self, split: str, features: Sequence[str] = ()) -> Documents:
        """Return the documents of a split as an iterable data set of PyTorch: a dictionary a document.

        Args:
            split: train, val or test.
            features: columns of the images' vectors, such as `features.efficientnet-lite0`.

        Raises:
            UsageError: there is no such split.
        """
        from multilink.documents import Documents

        return Documents(self._shards(split), self.folder, features)

    def _shards(self, split: str) -> list[Shard]:
        if split not in set(Split):
            raise UsageError(f"split {split!r}: expected one of {', '.join(Split)}")
        return split_parts(self.manifest, split) if self.manifest.parts("documents", split) else []


def open_dataset(name: str, *, lake: str) -> Dataset:
    """Return a version of a data set.

    Args:
        name: NAME (its latest version) or NAME@VERSION.
        lake: path or URI of the lake.

    Raises:
        NotFoundError: there is no such lake, data set or version.

    >>> data = open_dataset("documents", lake="lake")
    >>> data.splits, data.table("images", split="test", columns=["hash"]).num_rows
    (['test', 'train', 'val'], 6)
    """
    home = Lake.at(lake)
    manifest, folder = read_manifest(home, "@".join(home.find(name)))
    return Dataset(manifest, folder)
