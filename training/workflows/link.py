"""Links that a model predicts: of documents of a user's own, and of a data set version.

How documents of a user's own get their vectors is known in `orchestration/inference/`.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq

from schemas.console import Passing, Say
from schemas.failures import FAILURE_SCHEMA, Failure
from schemas.lake import Folder, Lake
from schemas.links import PredictedLink
from schemas.manifest import read_manifest
from schemas.tables import records_table
from training.data.documents import GivenDocument
from training.linking.decoys import Decoys, count_decoys
from training.linking.links import LinkedDocument, write_links
from training.linking.options import DEFAULT_OPTIONS, LinkOptions
from training.linking.relinked import Agreement, compare
from training.linking.shards import RELINKED
from training.linking.versions import LinkedVersion, link_version, prepare_linking
from training.mlflow.loading import LoadedModel, open_model
from training.model import LinkModel
from training.report.examples import ExampleDocument
from training.report.pages import own_documents_page, write_page
from training.report.relinking import relinked_page
from training.workflows.workers import by_workers

DRAWN = 200  # documents on a page; beyond, a browser becomes slow
DIFFERING = 40  # documents on the page of a relinking


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSummary:
    """How many documents of a file were linked, by how many links, where they are, and which could not be linked.

    Attributes:
        model: its address.
        output: file of the links.
        page: where the first documents are drawn; None: nowhere.
        documents: that were linked.
        links: of them.
        failures: of documents and images, as they were read and as they were linked.
        failures_path: file of them; there is none without failures.
        seconds: from the first document read to the last link written.
    """

    model: str
    output: str
    page: str | None
    documents: int
    links: int
    failures: tuple[Failure, ...]
    failures_path: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the numbers; failures are counted by reason, with the first of each as a sample."""
        reasons = Counter(str(failure.reason) for failure in self.failures)
        per_second = round(self.documents / self.seconds, 1)
        pace = {"seconds": round(self.seconds, 3), "documents_per_second": per_second}
        samples = {str(each.reason): f"{each.record_id}: {each.message}" for each in reversed(self.failures)}
        return asdict(self) | {"failures": dict(reasons), "samples": samples} | pace


def run_link(
    *,
    loaded: LoadedModel,
    documents: Iterable[GivenDocument | Failure],
    output: Path,
    options: LinkOptions = DEFAULT_OPTIONS,
    page: Path | None = None,
    say: Say,
) -> LinkSummary:
    """Write the links that a model predicts in documents to a Parquet file (columns: `schemas.links`).

    Documents and images that cannot be used become rows of the file `NAME.failures.parquet` beside it.

    Args:
        loaded: the model.
        documents: with what it reads, or why they could not be read.
        output: the file of links.
        options: how links are chosen, and what they carry.
        page: folder of a page that draws the first documents; their pictures are `jpegs`. None: none is drawn.
        say: takes a line of progress.

    Raises:
        UsageError: the model cannot link with these options.
    """
    linker, began, linked = loaded.linker(options), time.monotonic(), 0
    failures, drawn = list[Failure](), list[ExampleDocument]()

    def links() -> Iterator[PredictedLink]:
        nonlocal linked
        for found in linker.link_given(documents):
            if isinstance(found, Failure):
                failures.append(found)
                continue
            linked += 1
            say(Passing(f"{linked} documents linked, {linked / (time.monotonic() - began):.1f} documents/s"))
            if page is not None and len(drawn) < DRAWN:
                drawn.append(_drawn(found))
            yield from _named(found)

    count = write_links(links(), output)
    say(f"{count} links in {linked} documents")
    drawn_at = None
    if page is not None and drawn:
        drawn_at = str(write_page(page, own_documents_page(drawn, model=loaded.uri, count=linked)))
    return LinkSummary(
        model=loaded.uri,
        output=str(output),
        page=drawn_at,
        documents=linked,
        links=count,
        failures=tuple(failures),
        failures_path=_write_failures(failures, output.with_suffix(".failures.parquet")),
        seconds=time.monotonic() - began,
    )


def _write_failures(failures: Sequence[Failure], path: Path) -> str:
    """Write failures to a file, if there are any, and return its path."""
    path.unlink(missing_ok=True)
    if failures:
        pq.write_table(records_table(failures, FAILURE_SCHEMA), path)
    return str(path)


def _named(found: LinkedDocument) -> Iterator[PredictedLink]:
    """Yield the links of a user's document with the texts and images that they are of."""
    document = cast(GivenDocument, found.given)
    for link in found.links:
        source = None if document.sources is None else document.sources[link.image]
        yield replace(link, text=document.texts[link.sentence], source=source)


def _drawn(found: LinkedDocument) -> ExampleDocument:
    """Return a user's document as the page draws it."""
    document = cast(GivenDocument, found.given)
    return ExampleDocument(
        id=found.id,
        sentences=tuple(document.texts),
        images=tuple(document.jpegs or [None] * len(document.image_vectors)),
        predicted=tuple((link.sentence, link.image, link.similarity) for link in found.links),
        probabilities=tuple(link.probability for link in found.links if link.probability is not None),
    )


def run_link_version(
    *,
    model: str | None,
    dataset: str,
    lake: str,
    output: str,
    splits: Sequence[str] = (),
    workers: int = 1,
    options: LinkOptions = DEFAULT_OPTIONS,
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
        options: how links are chosen, and what they carry.
        tracking: URI of the MLflow store.
        with_documents: whether documents are written, too, with the links they came with beside the predicted ones.
        say: takes a line of progress.

    Raises:
        UsageError: the model, the data set or a split does not exist, or they do not fit together.
        BuildError: the linking could not be finished.
    """
    home = Lake.at(lake)
    reference = "@".join(home.find(dataset))
    loaded = open_model(model, tracking, dataset=reference)
    linking = prepare_linking(
        loaded.linker(options),
        home,
        reference,
        output=Folder(output if "://" in output else str(Path(output).absolute())),
        with_documents=with_documents,
    )
    say(f"linking {reference} with {loaded.uri}, workers: {workers}")
    with by_workers(workers):
        return link_version(loaded.model, linking, splits=splits, say=say)


def estimate_false(model: LinkModel, linked: LinkedVersion, lake: str) -> Decoys:
    """Return how many links of a version without known links are false at least."""
    return count_decoys(model, *read_manifest(Lake.at(lake), linked.manifest.dataset))


def compare_links(linked: LinkedVersion, lake: str, page: Path | None) -> Agreement:
    """Return how far the given links of a relinked version and the predicted ones agree, and draw where they differ.

    Args:
        linked: a version whose documents were written.
        lake: path or URI of its lake.
        page: folder of the page; None: none is drawn.
    """
    manifest, folder = read_manifest(Lake.at(lake), linked.manifest.dataset)
    paths = [entry.path for entry in linked.manifest.files if entry.path.startswith(f"{RELINKED}/")]
    relinked = compare(linked.output, paths, examples=DIFFERING if page else 0)
    if page is not None:
        write_page(page, relinked_page(relinked, manifest, folder, model=linked.manifest.model))
    return relinked.agreement
