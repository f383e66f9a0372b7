"""The images of a version that people have labelled, as a data set whose links are known.

A document keeps its sentences, and of its images the labelled ones. Such an image has one link, to the sentence
that fits, or none. So a gate, an evaluation and a calibration can read the labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.exports.subset import with_values, write_subset
from pipelines.turns import turn_of_build
from schemas.console import Say
from schemas.document_rows import from_row, to_row
from schemas.documents import Link, document_schema, indexes
from schemas.errors import UsageError
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.versions import fingerprint

Labels = Mapping[str, Mapping[int, int | None]]  # document -> index of an image -> number of its sentence, or none


@dataclass(frozen=True, slots=True)
class _Labelled:
    """Which rows the data set has, and their links."""

    labels: Labels

    def rows(self, documents: pa.Table) -> pa.Table:
        """Return the labelled documents with their labelled images, linked by their labels."""
        own = documents.filter(pc.is_in(documents["id"], pa.array(sorted(self.labels), pa.string())))
        names = document_schema().names
        rows = [self._linked(row) for row in own.select(names).to_pylist()]
        return with_values(own, rows, names)

    def _linked(self, row: dict[str, Any]) -> dict[str, Any]:
        labels = self.labels[row["id"]]
        kept, document = sorted(labels), from_row(row)
        texts = indexes(document.sentence_numbers or range(len(document.sentences)))
        links = tuple(Link(texts[text], new) for new, old in enumerate(kept) if (text := labels[old]) is not None)
        return to_row(replace(document.with_images(kept), links=links))

    def images(self, images: pa.Table) -> pa.Table:
        """Return rows as the version has them."""
        return images

    def settings(self, parent: str) -> dict[str, Any]:
        """Return what the settings of the data set say of it."""
        answers = [[name, sorted(own.items())] for name, own in sorted(self.labels.items())]
        return {"labelled": {"parent": parent, "answers": fingerprint(answers)}}


def write_labelled(lake: Lake, manifest: Manifest, folder: Folder, labels: Labels, name: str, *, say: Say) -> Manifest:
    """Write the labelled images of a version as the newest version of a data set of another name.

    Raises:
        EmptySubsetError: nothing is labelled.
        UsageError: there is a data set of that name that was not made of labels.
    """
    if name in lake.dataset_names() and "labelled" not in read_manifest(lake, name)[0].config:
        raise UsageError(f"--as {name}: a data set of this name is there, and was not made of labels")
    with turn_of_build(lake, name, say):
        written = write_subset(lake, manifest, folder, _Labelled(labels), name=name, say=say)
        lake.point_latest(name, written.version)
    return written
