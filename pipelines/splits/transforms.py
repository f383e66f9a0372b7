"""The splits stage in Beam: every document gets its split, and every leak between splits is found and counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import apache_beam as beam

from pipelines.settings import SplitsConfig
from pipelines.splits.assign import Survey, final_split, merge_surveys, survey_one
from pipelines.splits.leaks import LeakCount, leaks_of_group, near_image_leaks
from pipelines.splits.traces import Clue, Trace, clues_of, trace_of
from schemas.documents import Document, Split
from schemas.duplicates import Duplicate
from schemas.images import Image
from schemas.leaks import Leak, LeakKind

LeakPlace = tuple[str, str, str]  # kind, split, other split


@dataclass(eq=False)
class AssignSplits(beam.PTransform):
    """Gives every document its split."""

    config: SplitsConfig

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        survey = documents | "survey" >> beam.Map(self._survey) | "merge" >> beam.CombineGlobally(_MergeSurveys())
        return documents | "assign" >> beam.Map(self._assign, survey=beam.pvalue.AsSingleton(survey))

    def _survey(self, document: Document) -> Survey:
        return survey_one(document.id, document.split, self.config)

    def _assign(self, document: Document, survey: Survey) -> Document:
        split = final_split(document.id, document.split, self.config, survey.moves(self.config))
        return dataclasses.replace(document, split=split)


class _MergeSurveys(beam.CombineFn):
    def create_accumulator(self) -> Survey:
        return Survey()

    def add_input(self, accumulator: Survey, survey: Survey) -> Survey:
        return merge_surveys((accumulator, survey))

    def merge_accumulators(self, accumulators: Iterable[Survey]) -> Survey:
        return merge_surveys(accumulators)

    def extract_output(self, accumulator: Survey) -> Survey:
        return accumulator


@dataclass(eq=False)
class FindLeaks(beam.PTransform):
    """Every leak between splits: PCollection[Document] (with splits) to PCollection[Leak].

    Near images are looked for inside the clusters of near-duplicates alone: two that are near are in one cluster.

    Attributes:
        radius: that of the dedupe stage.
        images: PCollection[(content hash, Image)].
        duplicates: PCollection[Duplicate] of the dedupe stage.
    """

    radius: int
    images: beam.PCollection
    duplicates: beam.PCollection

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        wanted = documents | "image places" >> beam.FlatMap(_places)
        met = (wanted, self.images) | "meet looks" >> beam.CoGroupByKey() | "hand out" >> beam.FlatMap(_hand_out)
        keyed = documents | "key by id" >> beam.Map(_key_by_id)
        traces = (keyed, met) | "meet images" >> beam.CoGroupByKey() | "traces" >> beam.FlatMap(_traces)
        shared = (
            traces
            | "clues" >> beam.FlatMap(_keyed_clues)
            | "group clues" >> beam.GroupByKey()
            | "leaks" >> beam.FlatMap(_leaks)
        )
        clusters = self.duplicates | "clusters" >> beam.Map(_cluster_of) | "once" >> beam.Distinct()
        near = (
            traces
            | "to clusters" >> beam.FlatMap(_by_cluster, clusters=beam.pvalue.AsDict(clusters))
            | "group clusters" >> beam.GroupByKey()
            | "near leaks" >> beam.FlatMap(self._near)
        )
        return (shared, near) | "both" >> beam.Flatten() | "once each" >> beam.Distinct()

    def _near(self, group: tuple[str, Iterable[Trace]]) -> Iterator[Leak]:
        _, traces = group
        yield from near_image_leaks(list(traces), radius=self.radius)


class CountLeaks(beam.PTransform):
    """PCollection[Leak] to a `LeakCount` of each kind and pair of splits: `leaks.count_leaks` of any number."""

    def expand(self, leaks: beam.PCollection) -> beam.PCollection:
        keys = leaks | "keys" >> beam.Map(_leaked_key) | "count keys" >> _CountDistinct()
        documents = leaks | "documents" >> beam.Map(_leaking_document) | "count documents" >> _CountDistinct()
        return (keys, documents) | "meet counts" >> beam.CoGroupByKey() | "leak counts" >> beam.MapTuple(_leak_count)


class _CountDistinct(beam.PTransform):
    """(place, item) to (place, number of different items)."""

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        return items | "once" >> beam.Distinct() | "places" >> beam.Keys() | beam.combiners.Count.PerElement()


def _leaked_key(leak: Leak) -> tuple[LeakPlace, str]:
    return (str(leak.kind), str(leak.split), str(leak.other_split)), leak.key


def _leaking_document(leak: Leak) -> tuple[LeakPlace, str]:
    return (str(leak.kind), str(leak.split), str(leak.other_split)), leak.document


def _leak_count(place: LeakPlace, counts: tuple[Iterable[int], Iterable[int]]) -> LeakCount:
    kind, split, other = place
    (keys,), (documents,) = counts
    return LeakCount(LeakKind(kind), Split(split), Split(other), keys, documents)


def _places(document: Document) -> Iterator[tuple[str, str]]:
    for content_hash in {image.hash for image in document.images}:
        yield content_hash, document.id


def _hand_out(group: tuple[str, tuple[Iterable[str], Iterable[Image]]]) -> Iterator[tuple[str, Image]]:
    _, (documents, images) = group
    (image,) = images
    for document in documents:
        yield document, image


def _key_by_id(document: Document) -> tuple[str, Document]:
    return document.id, document


def _traces(group: tuple[str, tuple[Iterable[Document], Iterable[Image]]]) -> Iterator[Trace]:
    _, (documents, images) = group
    by_hash = {image.hash: image for image in images}
    for document in documents:
        yield trace_of(document, by_hash)


def _keyed_clues(trace: Trace) -> Iterator[tuple[tuple[str, bytes], Clue]]:
    for clue in clues_of(trace):
        yield (str(clue.kind), clue.digest), clue


def _leaks(group: tuple[tuple[str, bytes], Iterable[Clue]]) -> Iterator[Leak]:
    _, clues = group
    yield from leaks_of_group(list(clues))


def _cluster_of(duplicate: Duplicate) -> tuple[str, str]:
    return duplicate.image, duplicate.cluster


def _by_cluster(trace: Trace, clusters: Mapping[str, str]) -> Iterator[tuple[str, Trace]]:
    for name in sorted({clusters[image.hash] for image in trace.images if image.hash in clusters}):
        images = tuple(image for image in trace.images if clusters.get(image.hash) == name)
        yield name, replace(trace, images=images, texts=())
