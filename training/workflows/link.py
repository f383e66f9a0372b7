"""Links that a model predicts: in a user's documents, and in a data set version.

Where a corpus came with links, both are compared. `orchestration/inference/` computes the vectors of a user's
documents.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq

from schemas.documents import indexes
from schemas.failures import FAILURE_SCHEMA, Failure
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import Passing, Say, counted
from schemas.tables import records_table
from training.data.documents import GivenDocument
from training.evaluation.decoys import Decoys, count_decoys
from training.linking.links import DEFAULT_OPTIONS, LinkedDocument, Linker, LinkOptions, write_links
from training.linking.records import PredictedLink
from training.linking.relinked import Agreement, caution_line, compare
from training.linking.shards import RELINKED, fitted
from training.linking.versions import LinkedVersion, link_version, prepare_linking
from training.promotions.loaded import LoadedModel
from training.report.examples import ExampleDocument, sureness_of
from training.report.pages import own_documents_page, write_page

DRAWN = 200  # documents on a page; beyond, a browser becomes slow
EXAMPLES = 5  # links that a summary shows


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSummary:
    """How many documents of a file were linked, by how many links, where they are, and which could not be linked.

    Attributes:
        model: its address.
        output: file of the links.
        page: where the first documents are drawn; None: nowhere.
        documents: that were linked.
        links: of them.
        fitted: what of the model's steps was chosen again on these documents; None: nothing.
        examples: the first of the links.
        cautions: why links have a word and no probability, and of how many documents.
        failures: of documents and images, as they were read and as they were linked.
        failures_path: file of them; there is none without failures.
        seconds: from the first document read to the last link written.
    """

    model: str
    output: str
    page: str | None
    documents: int
    links: int
    fitted: str | None
    examples: tuple[PredictedLink, ...]
    cautions: Mapping[str, int]
    failures: tuple[Failure, ...]
    failures_path: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the numbers; failures are counted by reason, with the first of each as a sample."""
        reasons = Counter(str(failure.reason) for failure in self.failures)
        pace = {"seconds": round(self.seconds, 3), "documents_per_second": round(self.documents / self.seconds, 1)}
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
    """Write the links that a model predicts in documents to a Parquet file (columns: `training.linking.records`).

    Of at least 20 documents the first 200 choose the steps' weights (`training.linking.shards`), unless a calibration
    or a precision is given: these are of the model's own. Documents and images that cannot be used become rows of the
    file `NAME.failures.parquet` beside it.

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
    began, linked = time.monotonic(), 0
    linker, words, documents = fitted(loaded.linker(options), documents)
    if words:
        say(f"chosen on these documents: {words}")
    failures, drawn, examples = list[Failure](), list[ExampleDocument](), list[PredictedLink]()
    cautions = Counter[str]()

    def links() -> Iterator[PredictedLink]:
        nonlocal linked
        for outcome in linker.link_given(documents):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                continue
            linked += 1
            cautions.update([outcome.caution] if outcome.caution and outcome.links else ())
            say(Passing(f"{counted(linked, 'document')} linked"))
            if page is not None and len(drawn) < DRAWN:
                drawn.append(_drawn(outcome))
            yield from outcome.links
            examples.extend(outcome.links[: EXAMPLES - len(examples)])

    count = write_links(links(), output, note=words)
    say(f"{counted(count, 'link')} in {counted(linked, 'document')}")
    drawn_at = None
    if page is not None and drawn:
        drawn_at = str(write_page(page, own_documents_page(drawn, model=loaded.uri, count=linked, fitted=words)))
    return LinkSummary(
        model=loaded.uri,
        output=str(output),
        page=drawn_at,
        documents=linked,
        links=count,
        examples=tuple(examples),
        cautions=dict(cautions),
        failures=tuple(failures),
        fitted=words or None,
        failures_path=_write_failures(failures, output.with_suffix(".failures.parquet")),
        seconds=time.monotonic() - began,
    )


def _write_failures(failures: Sequence[Failure], path: Path) -> str:
    """Write failures to a file, if there are any, and return its path."""
    path.unlink(missing_ok=True)
    if failures:
        pq.write_table(records_table(failures, FAILURE_SCHEMA), path)
    return str(path)


def _drawn(linked: LinkedDocument) -> ExampleDocument:
    """Return a user's document as the page draws it."""
    document = cast(GivenDocument, linked.given)
    sentences, images = indexes(document.sentence_numbers or range(len(document.texts))), indexes(linked.image_numbers)
    row_of = indexes(linked.sentence_numbers.tolist())
    links = [(row_of[link.sentence], images[link.image], link) for link in linked.links]
    terms = linked.vectors.terms() if linked.vectors else {}
    return ExampleDocument(
        id=linked.id,
        sentences=tuple(document.texts),
        images=tuple(document.jpegs or [None] * len(document.image_vectors)),
        predicted=tuple((sentences[link.sentence], column, link.similarity) for _, column, link in links),
        sureness=sureness_of((link.probability, link.word) for link in linked.links),
        terms=tuple({name: float(matrix[row, column]) for name, matrix in terms.items()} for row, column, _ in links),
    )


def run_link_version(
    loaded: LoadedModel,
    lake: Lake,
    dataset: str,
    output: str,
    *,
    splits: Sequence[str] = (),
    options: LinkOptions = DEFAULT_OPTIONS,
    with_documents: bool = False,
    say: Say,
) -> LinkedVersion:
    """Write the links a model predicts in a data set version to a folder, a file a shard (`training.linking.records`).

    A version of another data set than the model's chooses the steps' weights, as in `run_link`.

    Args:
        loaded: the model.
        lake: holds the data set.
        dataset: NAME or NAME@VERSION.
        output: path or URI of the folder.
        splits: to be linked; none: all.
        options: how links are chosen, and what they carry.
        with_documents: whether documents are written, too, with the links they came with beside the predicted ones.
        say: takes a line of progress.

    Raises:
        UsageError: the data set or a split does not exist, or does not fit the model.
        BuildError: the linking could not be finished.
    """
    folder = Folder(output if "://" in output else str(Path(output).absolute()))
    linking = prepare_linking(loaded.linker(options), lake, dataset, output=folder, with_documents=with_documents)
    say(f"linking {linking.reference} with {loaded.uri}")
    return link_version(loaded.model, linking, splits=splits, say=say)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelinkSummary:
    """A relinked version.

    Attributes:
        linked: it.
        agreement: of the links given and predicted.
        trained_on: NAME@VERSION of the model's data.
        decoys: estimate of the false links, where no true link is known.
    """

    linked: LinkedVersion
    agreement: Agreement
    trained_on: str
    decoys: Decoys | None = None

    def lines(self) -> list[str]:
        """Return what to know of the model's probabilities here, and how far the links agree."""
        estimate = [] if self.decoys is None else [self.decoys.line()]
        caution, words = caution_line(self.trained_on, self.linked.manifest.dataset), self.linked.manifest.fitted
        chosen = [f"chosen on these documents: {words}"] if words else []
        return [caution, *chosen, *estimate, *self.agreement.lines()]

    def to_json(self) -> dict[str, Any]:
        about = {"agreement": self.agreement.to_json(), "trained_on": self.trained_on}
        estimate = None if self.decoys is None else self.decoys.false_percent
        false = {} if self.decoys is None else {"false_percent": None if estimate is None else asdict(estimate)}
        return self.linked.to_json() | about | false


def compare_links(linked: LinkedVersion, linker: Linker, lake: Lake) -> RelinkSummary:
    """Return how far the given links of a relinked version and the predicted ones agree.

    Args:
        linked: a version whose documents were written.
        linker: that predicted, with the options it predicted with.
        lake: holds the version.
    """
    manifest, folder = read_manifest(lake, linked.manifest.dataset)
    paths = [entry.path for entry in linked.manifest.files if entry.path.startswith(f"{RELINKED}/")]
    agreement = compare(linked.output, paths)
    return RelinkSummary(
        linked=linked,
        agreement=agreement,
        trained_on=linker.model.card.data.reference,
        decoys=None if agreement.judged else _estimate(linked, linker, manifest, folder),
    )


def _estimate(linked: LinkedVersion, linker: Linker, manifest: Manifest, folder: Folder) -> Decoys:
    """Return how many links of a linked version, with the options it was linked with, are false by an estimate."""
    splits = tuple(linked.manifest.splits)
    return count_decoys(linker.model, manifest, folder, splits, steps=linked.steps, choose=linker.pairs)
