"""Which features a build has, decided before it starts, and computing what no pack of the lake holds yet.

A plan travels to the workers. There each extractor is made again, and must be the one that was planned: a worker with
other weights, libraries or another kind of device than the machine that started the build says so and stops.

`Features` is plain, and used by the transforms; each object belongs to one worker. A picture that an extractor rejects,
or whose value cannot be stored, is reported with its reason; the others of its batch have theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pipelines.features.catalogue import Extractor, HasGraphs, extractors, module_of
from pipelines.features.pixels import cores
from pipelines.features.values import (
    DOCUMENTS,
    IMAGES,
    Passing,
    Rejected,
    Row,
    Value,
    checked,
    feature_array,
    feature_packs,
    value_array,
    value_rows,
)
from pipelines.features.weights import parse_weights
from pipelines.images.inspect import PackedImage, copy_code, given_array
from pipelines.packs import PackFolder, PackRef, present
from pipelines.settings import FeaturesConfig, HttpConfig, ImagesConfig
from schemas.codecs import picture_libraries
from schemas.configs import require
from schemas.documents import Document
from schemas.failures import Failure, Reason, Stage, is_about_machine
from schemas.features import FeatureColumn
from schemas.lake import Folder, Lake
from schemas.messages import BuildError, MultilinkError
from schemas.tables import travels
from schemas.versions import canonical_json, digest_within, fingerprint

_CODE = ("pipelines.features.", "schemas.codecs.", "schemas.features.")  # computes values, and stores them
_CATALOGUE = "pipelines.features.catalogue"  # which makes none
ITEMS_AT_ONCE = 128  # whose pictures and values are held in memory
Refs = list[PackRef | None]
Problems = dict[int, Rejected]  # by the number of an item
FeatureRefs = tuple[PackRef, ...]  # one for each computed column, in the order of the plan


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePlan:
    """The features of a build.

    Attributes:
        images: feature columns of the images part, sorted.
        sentences: feature columns of the documents part, sorted.
        given: path of the array of vectors that the source brings: the column of images without a fingerprint.
        config: names, storage, limits, weights; those of networks are graphs that the lake keeps.
        http: how weights are fetched.
        workers: processes that share the cores of a machine; 0: one a core.
        lake: whose packs keep what was computed.
        copies: how the pictures that extractors read were made.
    """

    images: tuple[FeatureColumn, ...]
    sentences: tuple[FeatureColumn, ...]
    given: str = ""
    config: FeaturesConfig
    http: HttpConfig
    workers: int = 1
    lake: Lake
    copies: str

    def extracted(self, table: str) -> tuple[FeatureColumn, ...]:
        """Return the columns of `images` or `documents` that are computed, not given."""
        columns = self.images if table == IMAGES else self.sentences
        return tuple(column for column in columns if column.fingerprint)

    @property
    def fingerprints(self) -> tuple[tuple[str, str], ...]:
        """Return (extractor, fingerprint) of every extractor: part of the version."""
        columns = (*self.extracted(IMAGES), *self.extracted(DOCUMENTS))
        return tuple(sorted((column.name, column.fingerprint) for column in columns))

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the modules of the extractors in use."""
        names = (*self.extracted(IMAGES), *self.extracted(DOCUMENTS))
        return tuple(sorted({module_of(column.name) for column in names}))

    def packs(self) -> list[PackFolder]:
        """Return the packs of the columns that are computed."""
        return [
            feature_packs(self.lake, column, table) for table in (IMAGES, DOCUMENTS) for column in self.extracted(table)
        ]

    def arrays(self, table: str, refs: Sequence[Sequence[PackRef]]) -> dict[str, pa.Array]:
        """Return the computed columns of a shard by name, for the references of each of its images or documents.

        Raises:
            BuildError: a pack is gone.
        """
        return {
            column.column: feature_array(self.lake, column, table, [of_item[number] for of_item in refs])
            for number, column in enumerate(self.extracted(table))
        }


# Tables of plans: the pages read texts and pictures by two models in turns, and loading an encoder takes 2 s.
@lru_cache(maxsize=8)
def extractors_of(plan: FeaturePlan, table: str) -> list[Extractor]:
    """Return the extractors of `plan.extracted(table)`: one of each for all threads of a process.

    Raises:
        BuildError: they are not what was planned.
    """
    names = plan.config.images if table == IMAGES else plan.config.sentences
    config = replace(plan.config, threads=plan.config.threads or max(1, cores() // (plan.workers or cores())))
    made = extractors(names, table, config, plan.http)
    differing = {*_columns(made, table, plan.copies)} ^ {*plan.extracted(table)}
    if differing:
        raise BuildError(
            f"extractor {min(differing).name}: this worker's weights, libraries, device or kind of processor differ "
            "from those of the machine that started the build; install the same, set features.device, and use machines "
            "of one instruction set"
        )
    return made


def plan_features(
    config: FeaturesConfig,
    images: ImagesConfig,
    http: HttpConfig,
    *,
    given: tuple[str, str] | None,
    lake: Lake,
    workers: int,
) -> FeaturePlan:
    """Return the features of a build.

    Args:
        config: names, storage, limits, weights.
        images: how the copies are made.
        http: how weights are fetched.
        given: name of the column and path of the array of vectors that the source brings instead of pictures.
        lake: where values are kept.
        workers: processes that share a machine's cores; 0: one a core.

    Raises:
        ConfigError: an extractor is not known, or its weights are not given.
        NotFoundError: a weight file or the array of given vectors is not there.
    """
    made = [
        *extractors(config.images, IMAGES, config, http),
        *extractors(config.sentences, DOCUMENTS, config, http),
    ]
    config = with_graphs(made, config, http, lake.networks)
    copies = canonical_json([copy_code(), images.jpeg_quality, picture_libraries()])
    columns = _columns(extractors(config.images, IMAGES, config, http), IMAGES, copies)
    if given is not None:
        rule = "the source has vectors of images in place of pictures; leave it empty"
        require(not columns, field="features.images", value=config.images, rule=rule)
        name, path = given
        columns = [FeatureColumn(name=name, dimensions=given_array(path).shape[1], storage=config.storage)]
    sentences = _columns(extractors(config.sentences, DOCUMENTS, config, http), DOCUMENTS, copies)
    return FeaturePlan(
        images=tuple(sorted(columns)),
        sentences=tuple(sorted(sentences)),
        given=given[1] if given else "",
        config=config,
        http=http,
        workers=workers,
        lake=lake,
        copies=copies,
    )


def with_graphs(made: Iterable[Extractor], config: FeaturesConfig, http: HttpConfig, folder: Folder) -> FeaturesConfig:
    """Return settings whose weights are graphs, kept in a folder, where extractors have checkpoints of networks."""
    weights = parse_weights(config.weights, http)
    for each in made:
        if isinstance(each, HasGraphs):
            weights |= each.graphs_in(folder)
    return replace(config, weights=tuple(map(str, weights.values())))


def _columns(made: Iterable[Extractor], table: str, copies: str) -> list[FeatureColumn]:
    """Return the columns of extractors; their fingerprints also name the code, and of images how the copies were made.

    Values are kept by fingerprint: what other code computed is computed again.
    """
    read = {"copies": copies} if table == IMAGES else {}
    columns = [column for extractor in made for column in extractor.columns]
    return [
        replace(c, fingerprint=fingerprint({"extractor": c.fingerprint, "code": _code_of(c.name), **read}))
        for c in columns
    ]


def _code_of(name: str) -> str:
    """Return the SHA-256 (hex) of the code that computes a column: its module, and what this uses of features."""
    module = module_of(name)
    within = (f"{module.partition('.')[0]}.",) if not module.startswith("pipelines.") else _CODE
    return digest_within(module, *within, beside=_CATALOGUE)


def missing_feature(record_id: str, problem: Rejected) -> Failure:
    """Return the failure row of a record that an extractor rejected."""
    return Failure(Stage.FEATURES, record_id, Reason.FEATURE_MISSING, problem.message)


class Features:
    """The computed columns of a table, in one worker: what is kept, and open packs for what is computed."""

    def __init__(self, plan: FeaturePlan, table: str) -> None:
        self._lake, self._extractors = plan.lake, extractors_of(plan, table)
        self._columns = {column.name: column for column in plan.extracted(table)}
        self._packs = {name: feature_packs(plan.lake, column, table) for name, column in self._columns.items()}
        self._indexes = {name: packs.index() for name, packs in self._packs.items()}  # no two workers have one key
        self._writers = {name: packs.writer() for name, packs in self._packs.items()}

    def fill(
        self, keys: Sequence[str], read: Callable[[Sequence[int]], Iterable[Any]], names: Sequence[str] = ()
    ) -> Iterator[FeatureRefs | Rejected]:
        """Yield where the values of each item are, in order; what no pack holds is computed.

        Args:
            keys: content hashes of images, or digests of documents' texts.
            read: returns the stored pictures, or the texts, of these numbers.
            names: of images: names or addresses of their files, by which given regions are looked up.

        Raises:
            IntegrityError: an extractor gave something else than its column says.
        """
        problems: Problems = {}
        refs = {name: self._find(name, keys, problems) for name in self._columns}
        for begin in range(0, len(keys), ITEMS_AT_ONCE):
            numbers = range(begin, min(begin + ITEMS_AT_ONCE, len(keys)))
            self._look_up_again(numbers, refs, problems, names)
            missing = [n for n in numbers if any(found[n] is None for found in refs.values())]
            self._compute(keys, dict(zip(missing, read(missing), strict=True)), refs, problems, names)
            for n in numbers:
                yield problems.get(n) or tuple(present((found[n] for found in refs.values()), [keys[n]] * len(refs)))

    def close(self) -> None:
        """Make what was computed visible."""
        for writer in self._writers.values():
            writer.close()

    def _find(self, name: str, keys: Sequence[str], problems: Problems) -> Refs:
        """Return where the value of each key is, or None; known rejections go to `problems`."""
        refs = self._indexes[name].find(keys)
        known = {number: ref for number, ref in enumerate(refs) if ref is not None}
        messages = self._packs[name].read([*known.values()], ["rejected"])["rejected"].to_pylist()
        problems |= {n: Rejected(message) for n, message in zip(known, messages, strict=True) if message is not None}
        return refs

    def _look_up_again(
        self, numbers: Iterable[int], refs: Mapping[str, Refs], problems: Problems, of_files: Sequence[str]
    ) -> None:
        """Pass over kept values that were looked up by other names: one picture may have several."""
        for extractor in self._extractors:
            if not hasattr(extractor, "reads_names"):
                continue
            (name,) = (column.name for column in extractor.columns)
            known = {n: ref for n in numbers if (ref := refs[name][n]) is not None}
            kept = feature_array(self._lake, self._columns[name], IMAGES, [*known.values()])
            rows = extracted(extractor, [of_files[n] for n in known])
            for position, (n, (value,)) in enumerate(zip(known, rows, strict=True)):
                is_sound = not isinstance(checked(value, self._columns[name]), Rejected)
                now = value_array([value], self._columns[name], IMAGES) if is_sound else None
                if now is None or not now.equals(kept.slice(position, 1)):
                    refs[name][n] = None
                    problems.pop(n, None)

    def _compute(
        self,
        keys: Sequence[str],
        items: Mapping[int, Any],
        refs: Mapping[str, Refs],
        problems: Problems,
        of_files: Sequence[str],
    ) -> None:
        """Compute what some items lack: one forward pass of each network that gives any of it."""
        for extractor in self._extractors:
            names = [column.name for column in extractor.columns]
            wanted = [n for n in items if any(refs[name][n] is None for name in names)]
            is_by_name = hasattr(extractor, "reads_names")
            rows = extracted(extractor, [of_files[n] if is_by_name else items[n] for n in wanted])
            for position, name in enumerate(names):
                lacking = {n: row[position] for n, row in zip(wanted, rows, strict=True) if refs[name][n] is None}
                self._keep(name, keys, lacking, refs[name], problems)

    def _keep(
        self, name: str, keys: Sequence[str], values: Mapping[int, Value | Rejected], refs: Refs, problems: Problems
    ) -> None:
        """Keep computed values, given by the number of their key; where they will be goes to `refs`."""
        sound = {number: checked(value, self._columns[name]) for number, value in values.items()}
        refused = {n: Rejected(f"{name}: {value.message}") for n, value in sound.items() if isinstance(value, Rejected)}
        kept = {number: value for number, value in sound.items() if not isinstance(value, Passing)}
        messages = [refused[n].message if n in refused else None for n in kept]
        rows = {"key": [keys[n] for n in kept], "value": value_rows(kept.values()), "rejected": messages}
        for number, ref in zip(kept, self._writers[name].add(rows), strict=True):
            refs[number] = ref
        problems |= refused


def extracted(extractor: Extractor, items: Sequence[Any]) -> Sequence[Row]:
    """Return an extractor's values of items; an item on which it fails unexpectedly costs the others nothing."""
    try:
        return extractor.extract(items)
    except MultilinkError:
        raise
    except Exception as error:
        if is_about_machine(error):
            raise
        if len(items) == 1:
            return [(Passing(f"{type(error).__name__}: {error}"),) * len(extractor.columns)]
        return [row for item in items for row in extracted(extractor, [item])]


@travels
@dataclass(frozen=True, slots=True)
class FeaturedImage:
    packed: PackedImage
    features: FeatureRefs = ()


@travels
@dataclass(frozen=True, slots=True)
class FeaturedDocument:
    """A document with its images in the order of `document.images`, and where its sentences' vectors are."""

    document: Document
    images: tuple[FeaturedImage, ...]
    sentences: FeatureRefs = ()
