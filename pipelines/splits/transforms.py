"""The splits stage in Beam: every document gets its split, and what splits share is found and counted.

    documents -> texts, packed ---> by digest ----------------------------------> leaks
              `> images, packed --> by hash, with clusters of duplicates -> by cluster -> leaks

Only arrays travel, some thousands of rows an element, in partitions whose number follows from that of the rows. Which
splits are empty is one row in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import apache_beam as beam

from pipelines.documents.rules import SettledDocument, id_of
from pipelines.partitions.transforms import ROWS_PER_PARTITION, CountRows, Gather, Pack, divide
from pipelines.settings import OnLeak, SplitsConfig
from pipelines.splits.assign import Survey, final_split, merge_surveys, survey_one
from pipelines.splits.shared import (
    Items,
    ShownImages,
    is_heeded,
    is_weaker_end,
    leaks_of_images,
    leaks_of_items,
    meet_clusters,
    pack_clusters,
    pack_shown,
    pack_texts,
)
from pipelines.transforms import LeaveOut, StageOutput, Tally
from schemas.duplicates import Duplicate, Leak
from schemas.failures import Failure, Reason, Stage

Ends = tuple[str, str, str]  # of a leak: its kind, split and other split


@dataclass(eq=False)
class AssignSplits(beam.PTransform):
    """Gives every settled document its split."""

    config: SplitsConfig

    def expand(self, documents: beam.PCollection[SettledDocument]) -> beam.PCollection[SettledDocument]:
        merge = beam.CombineGlobally(merge_surveys).as_singleton_view()
        survey = documents | "survey" >> beam.Map(self._survey) | "merge" >> merge
        return documents | "assign" >> beam.Map(self._assign, survey)

    def _survey(self, settled: SettledDocument) -> Survey:
        return survey_one(settled.document.id, settled.document.split, self.config)

    def _assign(self, settled: SettledDocument, survey: Survey) -> SettledDocument:
        document = settled.document
        split = final_split(document.id, document.split, self.config, survey.moves(self.config))
        return replace(settled, document=replace(document, split=split))


@dataclass(eq=False)
class DropLeaks(beam.PTransform):
    """Finds what splits share; where `on_leak` is `drop`, the weaker document of each heeded leak goes.

    Attributes:
        duplicates: PCollection[Duplicate] of the dedupe stage.
    """

    config: SplitsConfig
    duplicates: beam.PCollection[Duplicate]

    def expand(self, documents: beam.PCollection[SettledDocument]) -> StageOutput:
        leaks = documents | "find leaks" >> FindLeaks(self.duplicates)
        counts, tables = (leaks | "count leaks" >> ListLeaks(),), {"leaks": leaks}
        if self.config.on_leak is not OnLeak.DROP:
            return StageOutput(documents, counts=counts, tables=tables)
        heeded = leaks | "heeded" >> beam.Filter(is_heeded, self.config)
        ends = heeded | "weaker ends" >> beam.Filter(is_weaker_end) | "documents" >> beam.Map(attrgetter("document"))
        weaker = ends | "once" >> beam.Distinct()
        stays = (documents, weaker) | "keep" >> LeaveOut(id_of)
        failures = weaker | "failures" >> beam.Map(_leak_failure)
        return StageOutput(stays, (failures,), counts=counts, tables=tables)


def _leak_failure(document_id: str) -> Failure:
    message = "shares an image or a text with a document of another split; see the leaks table"
    return Failure(Stage.SHARDS, document_id, Reason.LEAKED, message)


@dataclass(eq=False)
class FindLeaks(beam.PTransform):
    """Every leak between splits: settled documents that have splits to PCollection[Leak].

    Attributes:
        duplicates: PCollection[Duplicate] of the dedupe stage: images that are near are in one cluster. Documents that
            were dropped since do not matter.
        rows: of a partition, about.
    """

    duplicates: beam.PCollection[Duplicate]
    rows: int = ROWS_PER_PARTITION

    def expand(self, documents: beam.PCollection[SettledDocument]) -> beam.PCollection[Leak]:
        texts, shown = documents | "texts" >> Pack(pack_texts), documents | "images" >> Pack(pack_shown)
        known = self.duplicates | "clusters" >> Pack(pack_clusters)
        count = (texts, shown) | "texts and images" >> beam.Flatten() | "count" >> CountRows()

        def by(column: str) -> Any:
            return beam.FlatMap(divide, count, by=column, rows=self.rows)

        joined = (shown | "by hash" >> by("images"), known | "clusters by hash" >> by("images")) | beam.CoGroupByKey()
        images = joined | "of each partition" >> beam.Values() | "to clusters" >> beam.MapTuple(meet_clusters)
        shared = images | "by cluster" >> by("clusters") | "images of clusters" >> Gather(ShownImages)
        repeated = texts | "by digest" >> by("digests") | "texts of digests" >> Gather(Items)
        of_images = shared | "leaks of images" >> beam.FlatMap(leaks_of_images)
        of_texts = repeated | "leaks of texts" >> beam.FlatMap(leaks_of_items)
        return (of_texts, of_images) | "leaks" >> beam.Flatten()


class ListLeaks(beam.PTransform):
    """Leaks to tallies of things of `leaks`: (ends, name).

    The name is `key` or `document`; of equal ends each key and each document is listed once.
    """

    def expand(self, leaks: beam.PCollection[Leak]) -> beam.PCollection:
        ends = leaks | "ends" >> beam.FlatMap(_ends) | "once" >> beam.Distinct()
        return ends | "tally" >> beam.ParDo(Tally(_things))


def _ends(leak: Leak) -> Iterator[tuple[Ends, str, str]]:
    ends = str(leak.kind), str(leak.split), str(leak.other_split)
    yield ends, "key", leak.key
    yield ends, "document", leak.document


def _things(end: tuple[Ends, str, str]) -> list[tuple[str, tuple[Ends, str]]]:
    ends, name, _ = end
    return [("leaks", (ends, name))]
