"""A random sample of a version's images, what people answered of them, and what that says of all of its links.

The sample follows from the links and a seed alone, so that everybody who labels has the same images. A larger sample
has the smaller one in it. Images of documents that could not be linked are not among them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np

from newsroom.decisions.records import Action, Decision, standing
from newsroom.decisions.store import Store
from newsroom.labels.linked import LinkSet, find_links, linked_documents, outcomes
from schemas.documents import IMAGE_NUMBERS, indexes
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.messages import UsageError
from schemas.parts import read_part
from schemas.versions import fingerprint
from training.data.ragged import Int64, stream
from training.linking.records import LINK_SCHEMA
from training.linking.shards import LINKS
from training.metrics.intervals import Interval
from training.metrics.labelled import (
    CorpusMeasures,
    Labels,
    Measured,
    Population,
    Threshold,
    agreement,
    drawn,
    measure,
    strata_of,
    threshold_for,
)

PARTS = 3  # strata of links
LabelledRows = Mapping[tuple[str, str], Sequence[int]]  # of a document and a content hash
FRAMES_HELD = 4  # of the links that are labelled now: each answer asks for them again


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame:
    """Every image of a version that a model linked, or could have linked.

    Attributes:
        population: of N images.
        sentences: N; the number of the sentence that each is linked with (`schemas.documents`), -1: none.
        starts: of each document, in the order of `outcomes`, its first image; then N.
        documents: id of each.
    """

    population: Population
    sentences: Int64
    starts: Int64
    documents: Sequence[str]

    def image(self, row: int) -> tuple[int, int]:
        """Return the document of an image and the image's index in it, both from 0."""
        document = int(np.searchsorted(self.starts, row, side="right")) - 1
        return document, row - int(self.starts[document])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the answers say of the links of a whole version.

    Attributes:
        images: of the version.
        links: of these, linked ones.
        answered: images that a person labelled.
        unsure: of these, images of which nobody could say anything.
        measures: of all links; intervals hold whether the unsure ones are all right or all wrong.
        wanted: precision that a threshold was asked for.
        threshold: of that precision; None: none is shown to have it, or none was asked for.
        alike: two labellers, the images that both answered, the share answered alike, and Cohen's kappa.
    """

    images: int
    links: int
    answered: int
    unsure: int
    measures: CorpusMeasures
    wanted: float | None
    threshold: Threshold | None
    alike: tuple[tuple[str, str, int, float, float], ...]

    def lines(self) -> list[str]:
        """Return it in words."""
        found = self.measures
        lines = [
            f"{self.answered} of {self.images} images are labelled, {self.links} are linked; cannot say: {self.unsure}"
        ]
        for name, each in (("precision", found.precision), ("recall", found.recall)):
            more = "" if each is None else f"; about {each.more} more labels would halve the interval"
            lines.append(f"{name} {_shown(None if each is None else each.interval)}{more}")
        lines.append(f"AUC of the links' scores {_shown(found.auc)}")
        if self.wanted is not None and self.threshold is None:
            lines.append(f"precision {self.wanted:.0%}: no threshold is shown to have it; label more images")
        elif self.wanted is not None and self.threshold is not None:
            kept = f"{self.threshold.kept:.0%} of the links reach it"
            lines.append(f"precision {self.wanted:.0%}: from a score of {self.threshold.score:.4g} on; {kept}")
        for first, second, count, share, kappa in self.alike:
            both = f"{first or 'nobody named'} and {second or 'nobody named'}"
            lines.append(f"{both}: {share:.0%} of {count} images alike, Cohen's kappa {kappa:.2f}")
        return lines


def links_by(sets: Sequence[LinkSet], model: str) -> LinkSet:
    """Return the links by a model: its address, the name of the links' folder, or a name whose only links these are.

    Raises:
        NotFoundError: there are none; the message says which there are.
    """
    alike = [each for each in sets if model in (each.manifest.model, each.name.rpartition("-")[0])]
    return alike[0] if len(alike) == 1 else find_links(sets, model)


@lru_cache(FRAMES_HELD)
def frame_of(links: LinkSet) -> Frame:
    """Return every image of the documents that were linked."""
    table = outcomes(links)
    documents, counts = table.column("document").to_pylist(), table.column("images").to_numpy()
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    number = {name: row for row, name in enumerate(documents)}
    moved = {row: indexes(own) for row, own in enumerate(table.column(IMAGE_NUMBERS).to_pylist()) if own}
    scores, sentences = np.zeros(starts[-1]), np.full(starts[-1], -1, np.int64)
    for entry in links.manifest.files:
        if entry.path.startswith(f"{LINKS}/"):
            part = read_part(links.folder, entry, ["document", "sentence", "image", "similarity"], LINK_SCHEMA)
            own = np.array([number[name] for name in part.column("document").to_pylist()], np.int64)
            images = part.column("image").to_numpy().copy()
            for at in np.flatnonzero(np.isin(own, list(moved))).tolist():
                images[at] = moved[int(own[at])][int(images[at])]
            rows = starts[own] + images
            scores[rows], sentences[rows] = part.column("similarity").to_numpy(), part.column("sentence").to_numpy()
    is_linked = sentences >= 0
    population = Population(strata=strata_of(is_linked, scores, PARTS), is_linked=is_linked, scores=scores)
    return Frame(population=population, sentences=sentences, starts=starts, documents=documents)


def sample_of(links: LinkSet, seed: int) -> str:
    """Return what a sample of links is known by."""
    return fingerprint({"links": links.manifest.made_by, "dataset": links.manifest.dataset, "seed": seed})


@lru_cache(FRAMES_HELD)
def drawn_images(frame: Frame, count: int, seed: int) -> Sequence[int]:
    """Return the rows of the images to be labelled, in the order in which they are shown."""
    return tuple(drawn(frame.population.strata, count, stream("labels", str(seed))).tolist())


def reported(frame: Frame, answers: Iterable[Decision], known: LabelledRows, *, wanted: float | None = None) -> Report:
    """Return what answers say of all links. Of two answers on an image the later counts; cannot say gives way.

    Args:
        frame: every image.
        answers: of one sample.
        known: rows of the labelled images (`labelled_rows`).
        wanted: precision that a threshold is wanted for, 0 to 1.

    Raises:
        UsageError: nobody has answered.
    """
    counted = _counted(answers, known)
    last = _last(counted, known)
    of_person: dict[str, dict[tuple[str, str], str]] = {}
    for each in counted:
        answer = str(each.action) if each.sentence is None else str(each.sentence)
        of_person.setdefault(each.who, {})[each.document, each.image] = answer
    everybody = {row for each in counted for row in known[each.document, each.image]}
    unsure = sorted(everybody - last.keys())
    population, none = frame.population, CorpusMeasures(precision=None, recall=None, auc=None)
    extremes = [_labels(frame, last, unsure, are_right=are_right) for are_right in (False, True)] if last else []
    answered = measure(population, _labels(frame, last, [], are_right=False)) if last else none
    return Report(
        images=len(population.scores),
        links=int(population.is_linked.sum()),
        answered=len(everybody),
        unsure=len(unsure),
        measures=_widened(answered, [measure(population, each) for each in extremes] if unsure else []),
        wanted=wanted,
        threshold=None if wanted is None or not extremes else threshold_for(population, extremes[0], wanted),
        alike=tuple(_alike(of_person)),
    )


def _labels(frame: Frame, last: dict[int, int | None], unsure: list[int], *, are_right: bool) -> Labels:
    """Return what people say; what nobody can say is taken to be all right, or all wrong and missed."""
    rows = np.array([*sorted(last), *unsure], np.int64)
    fits = np.array([-1 if last[row] is None else last[row] for row in sorted(last)], np.int64)
    is_linked = frame.population.is_linked[rows[len(last) :]]
    is_right = (fits >= 0) & (fits == frame.sentences[rows[: len(last)]])
    return Labels(
        rows=rows,
        is_right=np.concatenate([is_right, is_linked & are_right]),
        has_text=np.concatenate([fits >= 0, is_linked | (not are_right)]),
    )


def _widened(answered: CorpusMeasures, extremes: Sequence[CorpusMeasures]) -> CorpusMeasures:
    """Return measures whose intervals hold whatever is true of the images of which nobody could say anything."""

    def wide(interval: Interval, others: Sequence[Interval | None]) -> Interval:
        ends = [each for each in (interval, *others) if each is not None]
        return Interval(interval.mean, min(each.low for each in ends), max(each.high for each in ends))

    def widened(mine: Measured | None, others: Sequence[Measured | None]) -> Measured | None:
        intervals = [None if each is None else each.interval for each in others]
        return None if mine is None else replace(mine, interval=wide(mine.interval, intervals))

    return CorpusMeasures(
        precision=widened(answered.precision, [each.precision for each in extremes]),
        recall=widened(answered.recall, [each.recall for each in extremes]),
        auc=None if answered.auc is None else wide(answered.auc, [each.auc for each in extremes]),
    )


def _counted(answers: Iterable[Decision], known: LabelledRows) -> list[Decision]:
    found = [each for each in standing(answers) if (each.document, each.image) in known]
    if not found:
        raise UsageError("no image of this sample is labelled yet; `multilink label` shows them")
    return found


def _last(answers: Iterable[Decision], known: LabelledRows) -> dict[int, int | None]:
    """Return row -> the sentence that fits, of the images of which somebody could say something."""
    clear = (each for each in answers if each.action is not Action.CANNOT_SAY)
    return {row: each.sentence for each in clear for row in known[each.document, each.image]}


def labels_of(frame: Frame, answers: Iterable[Decision], known: LabelledRows) -> dict[str, dict[int, int | None]]:
    """Return document -> index of an image -> number of the sentence that fits, or None, as people labelled it.

    Args:
        frame: as `reported` takes it.
        answers: likewise.
        known: likewise.

    Raises:
        UsageError: nobody has answered.
    """
    labels: dict[str, dict[int, int | None]] = {}
    for row, sentence in _last(_counted(answers, known), known).items():
        document, place = frame.image(row)
        labels.setdefault(frame.documents[document], {})[place] = sentence
    return labels


def _alike(of_person: dict[str, dict[tuple[str, str], str]]) -> Iterable[tuple[str, str, int, float, float]]:
    for first, second in combinations(sorted(of_person), 2):
        both = sorted(of_person[first].keys() & of_person[second].keys())
        if both:
            found = agreement(*([of_person[who][each] for each in both] for who in (first, second)))
            yield first, second, len(both), *found


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return "is not known yet"
    return f"{interval.mean:.1%} ({interval.low:.1%} to {interval.high:.1%} with 95%)"


def answered(
    links: LinkSet, manifest: Manifest, folder: Folder, log: Store, *, seed: int
) -> tuple[Frame, list[Decision], LabelledRows]:
    """Return every image of a version's links by a model, the answers in a log on a sample, and where they are."""
    frame, answers = frame_of(links), list(log.decisions(article=sample_of(links, seed)))
    return frame, answers, labelled_rows(frame, answers, links, manifest, folder)


def labelled_rows(
    frame: Frame, answers: Sequence[Decision], links: LinkSet, manifest: Manifest, folder: Folder
) -> LabelledRows:
    """Return document and content hash -> rows of the frame, of all images of documents that have an answer.

    An image that a document has twice has a row for each place: what is said of it counts at both.
    """
    rows: dict[tuple[str, str], list[int]] = {}
    for row, picture in pictures_of(frame, answers, links, manifest, folder).items():
        rows.setdefault(picture, []).append(row)
    return rows


def pictures_of(
    frame: Frame, answers: Sequence[Decision], links: LinkSet, manifest: Manifest, folder: Folder
) -> dict[int, tuple[str, str]]:
    """Return row of the frame -> document and content hash, of all images of documents that have an answer."""
    named = {each.document for each in answers}
    own = [row for row, name in enumerate(frame.documents) if name in named]
    return {
        int(frame.starts[row]) + place: (document.drawn.id, image)
        for row, document in zip(own, linked_documents(links, manifest, folder, own), strict=True)
        for place, image in enumerate(document.images)
    }


def label_of(answer: str, *, sentences: Sequence[int], known: Decision) -> Decision:
    """Return a label: the number of a sentence, none-fits or cannot-say.

    Args:
        answer: as the form has it.
        sentences: numbers of the document's sentences.
        known: the rest of the label.

    Raises:
        UsageError: the answer is none of these.
    """
    if answer.isascii() and answer.isdigit() and int(answer) in sentences:
        return replace(known, action=Action.FITS, sentence=int(answer))
    if answer not in (Action.NONE_FITS, Action.CANNOT_SAY):
        raise UsageError("answer: expected the number of a sentence, none-fits or cannot-say")
    return replace(known, action=Action(answer))
