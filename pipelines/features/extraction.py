"""Computing what is missing: of some pictures or documents, the features that no pack of the lake holds yet.

Plain classes, used by the transforms; each object belongs to one worker. A picture that an extractor rejects, or whose
value cannot be stored, is reported with its reason; the others of its batch have theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pipelines.features.catalogue import Extractor
from pipelines.features.columns import checked, feature_packs, value_rows
from pipelines.features.featured import FeatureRefs
from pipelines.features.plan import FeaturePlan
from pipelines.features.values import Rejected, Row, Value
from pipelines.packs import PackRef
from schemas.errors import MultilinkError
from schemas.failures import is_about_machine

PASSES_AT_ONCE = 4  # forward passes of one batch: decoding runs ahead within a batch
Refs = list[PackRef | None]
Problems = dict[int, Rejected]  # by the number of an item


class Unexpected(Rejected):
    """An error that no extractor foresees: about this item now, and not kept for later builds."""


class Features:
    """The computed columns of a table, in one worker: what is kept, and open packs for what is computed."""

    def __init__(self, plan: FeaturePlan, table: str) -> None:
        self._extractors = plan.extractors(table)
        self._columns = {column.name: column for column in plan.extracted(table)}
        self._packs = {name: feature_packs(plan.lake, column, table) for name, column in self._columns.items()}
        self._writers = {name: packs.writer() for name, packs in self._packs.items()}
        self._batch = PASSES_AT_ONCE * max(plan.config.batch_images, plan.config.threads)

    def fill(
        self, keys: Sequence[str], read: Callable[[Sequence[int]], Iterable[Any]]
    ) -> Iterator[FeatureRefs | Rejected]:
        """Yield where the values of each item are, in order; what no pack holds is computed, a batch at a time.

        Args:
            keys: content hashes of images, or digests of documents' texts.
            read: returns the stored pictures, or the texts, of these numbers.

        Raises:
            IntegrityError: an extractor gave something else than its column says.
        """
        problems: Problems = {}
        refs = {name: self._find(name, keys, problems) for name in self._columns}
        for begin in range(0, len(keys), self._batch):
            numbers = range(begin, min(begin + self._batch, len(keys)))
            missing = [n for n in numbers if any(found[n] is None for found in refs.values())]
            self._compute(keys, dict(zip(missing, read(missing), strict=True)), refs, problems)
            for n in numbers:
                yield problems.get(n) or tuple(ref for found in refs.values() if (ref := found[n]))

    def close(self) -> None:
        """Make what was computed visible."""
        for writer in self._writers.values():
            writer.close()

    def _find(self, name: str, keys: Sequence[str], problems: Problems) -> Refs:
        """Return where the value of each key is, or None; known rejections go to `problems`."""
        refs = self._packs[name].index().find(keys)
        known = {number: ref for number, ref in enumerate(refs) if ref is not None}
        messages = self._packs[name].read([*known.values()], ["rejected"])["rejected"].to_pylist()
        problems |= {n: Rejected(message) for n, message in zip(known, messages, strict=True) if message is not None}
        return refs

    def _compute(
        self, keys: Sequence[str], items: Mapping[int, Any], refs: Mapping[str, Refs], problems: Problems
    ) -> None:
        """Compute what some items lack: one forward pass of each network that gives any of it."""
        for extractor in self._extractors:
            names = [column.name for column in extractor.columns]
            wanted = [n for n in items if any(refs[name][n] is None for name in names)]
            rows = extracted(extractor, [items[n] for n in wanted])
            for position, name in enumerate(names):
                lacking = {n: row[position] for n, row in zip(wanted, rows, strict=True) if refs[name][n] is None}
                self._keep(name, keys, lacking, refs[name], problems)

    def _keep(
        self, name: str, keys: Sequence[str], values: Mapping[int, Value | Rejected], refs: Refs, problems: Problems
    ) -> None:
        """Keep computed values, given by the number of their key; where they will be goes to `refs`."""
        sound = {number: checked(value, self._columns[name]) for number, value in values.items()}
        told = {n: Rejected(f"{name}: {value.message}") for n, value in sound.items() if isinstance(value, Rejected)}
        kept = {number: value for number, value in sound.items() if not isinstance(value, Unexpected)}
        messages = [told[n].message if n in told else None for n in kept]
        rows = {"key": [keys[n] for n in kept], "value": value_rows(kept.values()), "rejected": messages}
        for number, ref in zip(kept, self._writers[name].add(rows), strict=True):
            refs[number] = ref
        problems |= told


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
            return [(Unexpected(f"{type(error).__name__}: {error}"),) * len(extractor.columns)]
        return [row for item in items for row in extracted(extractor, [item])]
