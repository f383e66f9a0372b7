"""Links that a corpus came with beside those that a model predicts: how far they agree, and what that is worth."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from training.evaluation.decoys import Decoys, count_decoys
from training.linking.links import Linker
from training.linking.relinked import Agreement, compare
from training.linking.shards import RELINKED
from training.linking.versions import LinkedVersion
from training.report.pages import write_page
from training.report.relinking import agreement_lines, caution_line, relinked_page

DIFFERING = 40  # documents on the page of a relinking


@dataclass(frozen=True, slots=True, kw_only=True)
class RelinkSummary:
    """A relinked version.

    Attributes:
        linked: it.
        agreement: of the links given and predicted.
        trained_on: NAME@VERSION of the model's data.
        decoys: estimate of the false links, where no true link is known.
        page: folder of a page of documents in which they differ, where one was written.
    """

    linked: LinkedVersion
    agreement: Agreement
    trained_on: str
    decoys: Decoys | None = None
    page: Path | None = None

    def lines(self) -> list[str]:
        """Return what to know of the model's probabilities here, and how far the links agree."""
        estimate = [] if self.decoys is None else [self.decoys.line()]
        caution = caution_line(self.trained_on, self.linked.manifest.dataset)
        return [caution, *estimate, *agreement_lines(self.agreement)]

    def to_json(self) -> dict[str, Any]:
        about = {"agreement": self.agreement.to_json(), "page": self.page and str(self.page)}
        estimate = None if self.decoys is None else self.decoys.false_percent
        false = {} if self.decoys is None else {"false_percent": None if estimate is None else asdict(estimate)}
        return self.linked.to_json() | about | {"trained_on": self.trained_on} | false


def compare_links(linked: LinkedVersion, linker: Linker, lake: Lake, page: Path | None) -> RelinkSummary:
    """Return how far the given links of a relinked version and the predicted ones agree, and draw where they differ.

    Args:
        linked: a version whose documents were written.
        linker: that predicted, with the options it predicted with.
        lake: holds the version.
        page: folder of the page; None: none is drawn.
    """
    manifest, folder = read_manifest(lake, linked.manifest.dataset)
    paths = [entry.path for entry in linked.manifest.files if entry.path.startswith(f"{RELINKED}/")]
    relinked = compare(linked.output, paths, examples=DIFFERING if page else 0)
    if page is not None:
        write_page(page, relinked_page(relinked, manifest, folder, model=linked.manifest.model))
    return RelinkSummary(
        linked=linked,
        agreement=relinked.agreement,
        trained_on=linker.model.card.data.reference,
        decoys=None if relinked.agreement.judged else _estimate(linked, linker, manifest, folder),
        page=page,
    )


def _estimate(linked: LinkedVersion, linker: Linker, manifest: Manifest, folder: Folder) -> Decoys:
    """Return how many links of a linked version, with the options it was linked with, are false by an estimate."""
    return count_decoys(linker.model, manifest, folder, tuple(linked.manifest.splits), choose=linker.pairs)
