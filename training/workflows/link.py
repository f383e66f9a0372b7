"""What the command link does, for documents of a user's own and for a data set version: arguments to a summary.

How documents of a user's own get their vectors is `orchestration.link`'s to say.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from schemas.console import Passing, Say
from schemas.errors import UsageError
from schemas.failures import Failure
from schemas.lake import Folder, Lake
from schemas.links import PredictedLink
from schemas.manifest import read_manifest
from training.data.documents import GivenDocument
from training.linking.links import LinkedDocument, Linker, check_refined, threshold_of, write_links
from training.linking.relinked import Agreement, compare
from training.linking.shards import RELINKED
from training.linking.versions import LinkedVersion, LinkShards, link_here, link_version, prepare_linking
from training.metrics.calibration import Calibration
from training.metrics.relations import RefineConfig
from training.mlflow.registry import LoadedModel, calibration_of, champion_of_dataset, load, open_registry
from training.report.examples import ExampleDocument
from training.report.pages import own_documents_page, write_page
from training.report.relinking import relinked_page

DRAWN = 200  # documents on a page; beyond, a browser becomes slow
DIFFERING = 40  # documents on the page of a relinking


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSummary:
    """How many documents of a file were linked, by how many links, where they are, and which could not be linked.

    `seconds` is everything from the first document read to the last link written.
    """

    model: str
    output: str
    page: str | None
    documents: int
    links: int
    failures: tuple[Failure, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the numbers; failures are counted by reason."""
        reasons = Counter(str(failure.reason) for failure in self.failures)
        per_second = round(self.documents / self.seconds, 1)
        pace = {"seconds": round(self.seconds, 3), "documents_per_second": per_second}
        return asdict(self) | {"failures": dict(reasons)} | pace


def run_link(
    *,
    loaded: LoadedModel,
    documents: Iterable[GivenDocument],
    output: str,
    calibration: Calibration | None = None,
    precision: float | None = None,
    refine: RefineConfig | None = None,
    page: Path | None = None,
    say: Say,
) -> LinkSummary:
    """Write the links a model predicts in documents to a Parquet file (columns: `schemas.links`).

    With a calibration links have a probability; with a precision, those below its threshold are left out. With a
    refinement, links are chosen by similarities that predicted relations refine. With a folder for a page, the first
    documents are drawn there; their pictures are `jpegs`.
    """
    linked, failures, began = 0, list[Failure](), time.monotonic()
    waiting, drawn = dict[str, GivenDocument](), list[ExampleDocument]()
    linker = Linker(model=loaded.model, uri=loaded.uri, calibration=calibration, precision=precision, refine=refine)
    threshold_of(calibration, precision, loaded.uri)
    check_refined(loaded.model, refine)

    def noted() -> Iterator[GivenDocument]:
        for document in documents:
            waiting[document.id] = document
            yield document

    def links() -> Iterator[PredictedLink]:
        nonlocal linked
        for found in linker.link_given(noted()):
            if isinstance(found, Failure):
                failures.append(found)
                waiting.pop(found.record_id)
                continue
            linked += 1
            say(Passing(f"{linked} documents linked, {linked / (time.monotonic() - began):.1f} documents/s"))
            document = waiting.pop(found.id)
            if page is not None and len(drawn) < DRAWN:
                drawn.append(_drawn(document, found))
            yield from _named(document, found)

    count = write_links(links(), Path(output))
    say(f"{count} links in {linked} documents")
    drawn_at = None
    if page is not None and drawn:
        drawn_at = str(write_page(page, own_documents_page(drawn, model=loaded.uri, count=linked)))
    return LinkSummary(
        model=loaded.uri,
        output=output,
        page=drawn_at,
        documents=linked,
        links=count,
        failures=tuple(failures),
        seconds=time.monotonic() - began,
    )


def _named(document: GivenDocument, found: LinkedDocument) -> Iterator[PredictedLink]:
    """Yield a document's links with the texts and images that they are of."""
    for link in found.links:
        source = None if document.sources is None else document.sources[link.image]
        yield replace(link, text=document.texts[link.sentence], source=source)


def _drawn(document: GivenDocument, found: LinkedDocument) -> ExampleDocument:
    """Return a document as the page shows it."""
    return ExampleDocument(
        id=document.id,
        auc=None,
        sentences=tuple(document.texts),
        images=tuple(document.jpegs or [None] * len(document.image_vectors)),
        predicted=tuple((link.sentence, link.image, link.similarity) for link in found.links),
        probabilities=tuple(link.probability for link in found.links if link.probability is not None),
        links=None,
    )


def run_link_version(
    *,
    model: str | None,
    dataset: str,
    lake: str,
    output: str,
    splits: Sequence[str] = (),
    workers: int = 1,
    precision: float | None = None,
    refine: RefineConfig | None = None,
    calibration_path: Path | None = None,
    tracking: str | None = None,
    with_documents: bool = False,
    say: Say,
) -> LinkedVersion:
    """Write the links a model predicts in a data set version to a folder, a file a shard (`schemas.links`).

    Args:
        model: its address, or a registered name (its champion); None: the one champion among the data set's models.
        dataset: NAME or NAME@VERSION.
        lake: path or URI of the lake.
        output: path or URI of the folder.
        splits: to be linked; none: all.
        workers: shards linked at once. With more than one, or with RAY_ADDRESS in the environment, by Ray.
        precision: share of links that is to be true; the others are left out.
        refine: by which refined similarities links are chosen; None: by the cosines.
        calibration_path: file of the model's calibration; its run's by default.
        tracking: URI of the MLflow store.
        with_documents: whether documents are written, too, with the links they came with beside the predicted ones.
        say: takes a line of progress.

    Raises:
        UsageError: something asked for does not exist or does not fit together.
        BuildError: the linking could not be finished.
    """
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected at least 1")
    home = Lake.at(lake)
    client = open_registry(tracking, [model] if model else None)
    reference = "@".join(home.find(dataset))
    loaded = load(model or champion_of_dataset(client, reference.partition("@")[0]).uri, client)
    linking = prepare_linking(
        loaded.model,
        home,
        reference,
        uri=loaded.uri,
        output=Folder(output if "://" in output else str(Path(output).absolute())),
        calibration=calibration_of(loaded, calibration_path),
        precision=precision,
        refine=refine,
        with_documents=with_documents,
    )
    say(f"linking {reference} with {loaded.uri}, workers: {workers}")
    return link_version(loaded.model, linking, splits=splits, link_shards=_linker(workers), say=say)


def compare_links(linked: LinkedVersion, lake: str, page: Path | None) -> Agreement:
    """Return how far the given links of a relinked version and the predicted ones agree, and draw where they differ.

    Args:
        linked: a version whose documents were written.
        lake: path or URI of its lake.
        page: folder of the page; None: none is drawn.
    """
    manifest, folder = read_manifest(Lake.at(lake), linked.manifest.dataset)
    paths = [entry.path for entry in linked.manifest.files if entry.path.startswith(f"{RELINKED}/")]
    relinked = compare(linked.output, paths, shown=DIFFERING if page else 0)
    if page is not None:
        write_page(page, relinked_page(relinked, manifest, folder, model=linked.manifest.model))
    return relinked.agreement


def _linker(workers: int) -> LinkShards:
    """Return who links: this process alone, or Ray's workers here or on the cluster of RAY_ADDRESS."""
    address = os.environ.get("RAY_ADDRESS") or None
    if workers == 1 and address is None:
        return link_here
    from training.ray.link import RayWorkers

    return RayWorkers(workers, address)
