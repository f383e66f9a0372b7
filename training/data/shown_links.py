"""Which documents' links a supervised run is shown; nothing else that trains comes here.

Every worker knows all of them, as it knows the index: they are a few numbers a document.
"""

from __future__ import annotations

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from training.config import TrainConfig
from training.data.lake import read_index, read_links
from training.data.ragged import Int64
from training.data.streams import stream

ShownLinks = tuple[Int64 | None, ...]


def show_links(manifest: Manifest, folder: Folder, split: Split, config: TrainConfig) -> ShownLinks:
    """Return per document its links, None where they are not shown: of all but the labelled share.

    That goes for validation too: an epoch that were chosen by all its links would have seen more than the share.
    """
    links = read_links(manifest, folder, split)
    ids = read_index(manifest, folder, split).ids
    share, seed = config.objective.labelled_share, config.training.seed
    return tuple(row if is_labelled(id_, share=share, seed=seed) else None for id_, row in zip(ids, links, strict=True))


def is_labelled(document: str, *, share: float, seed: int) -> bool:
    """Return whether a document is of the labelled share; one that is, is of every larger share, too."""
    return float(stream("labelled", seed, document).random()) < share
