"""What is needed of a data set version, checked before anything is read or built.

What does not fit is one line, with what to do.
"""

from collections.abc import Iterator

import numpy as np

from schemas.documents import Split
from schemas.errors import UsageError
from schemas.manifest import Manifest
from training.data.reading import Reading
from training.data.split import TrainingSplit

DOCUMENTS_AT_ONCE = 1 << 20


def check_fits(reading: Reading, manifest: Manifest) -> None:
    """Raise a `UsageError` with the first requirement of the objective that a data set version does not meet."""
    problem = next(_problems(reading, manifest), None)
    if problem is not None:
        raise UsageError(f"{manifest.dataset}@{manifest.version}: objective.name = '{reading.objective}' {problem}")


def check_pairs(reading: Reading, reference: str, split: TrainingSplit) -> None:
    """Raise a `UsageError` where the objective is for pairs and a document, as the towers read it, is none.

    The manifest knows images; how many texts a document has also depends on which of them are read.
    """
    if not reading.needs.pairs:
        return
    index, count, shown = split.index, 0, ""
    for first in range(0, len(index), DOCUMENTS_AT_ONCE):
        positions = np.arange(first, min(first + DOCUMENTS_AT_ONCE, len(index)))
        texts, images = index.sentences.sizes(positions), index.images.sizes(positions)
        more = np.flatnonzero((texts > 1) | (images > 1))
        if len(more) and not count:
            shown = f"{split.documents(positions[more[:1]]).ids[0]}: {texts[more[0]]} and {images[more[0]]}"
        count += len(more)
    if count:
        raise UsageError(
            f"{reference}: objective.name = '{reading.objective}' is for documents of one text and one image, "
            f"{count} have more (document {shown}); read one role (--set data.roles=caption), fuse several "
            "(--set text.name=multi-source), or use --set objective.name=cross-document"
        )


def _problems(reading: Reading, manifest: Manifest) -> Iterator[str]:
    """Yield what does not fit and what to do.

    Objectives of pairs need documents of one image (and of one text, see `check_pairs`). Relations belong to links:
    without one, there is none to learn. The supervised objective needs known links, and its sentences and images
    numbered as the links number them.
    """
    needs = reading.needs
    learnt_from = {name: manifest.splits[name] for name in (Split.TRAIN, Split.VAL) if name in manifest.splits}
    has_no_link = Split.TRAIN in learnt_from and not learnt_from[Split.TRAIN].links
    for name, split in learnt_from.items():
        if needs.pairs and split.max_images > 1:
            yield (
                f"is for documents of one text and one image, split '{name}' has up to {split.max_images} images; "
                "use --set objective.name=cross-document"
            )
    if needs.relations and has_no_link:
        yield (
            "learns relations of links, the training split has no link; train on a data set with relations "
            "(cite, clue), or use --set objective.name=triplet-hardest"
        )
    if needs.links and has_no_link:
        yield "learns from links, but the training split has none; use another objective"
    if needs.links and (reading.data.roles or needs.sources):
        yield "reads all sentences, each by itself; leave data.roles empty and use a tower of one source"
    if needs.links and reading.max_rows:
        yield "reads whole documents; use --set training.max_rows=0"
