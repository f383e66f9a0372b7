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
from schemas.features import FeatureColumn
from schemas.lake import Lake

PASSES_AT_ONCE = 4  # forward passes of one batch: decoding runs ahead within a batch
Refs = list[PackRef | None]
Problems = dict[int, Rejected]  # by the number of an item


class Unexpected(Rejected):
    """An error that no extractor foresees: about this item now, and not kept for later builds."""


class ColumnPacks:
    """The values of one column: those that are kept, and an open pack for those that are computed."""

    def __init__(self, lake: Lake, column: FeatureColumn, table: str) -> None:
        self._column = column
        self._packs = feature_packs(lake, column, table)
        self._writer = self._packs.writer()

    def find(self, keys: Sequence[str], problems: Problems) -> Refs:
        """Return where the value of each key is, or None; known rejections go to `problems`."""
        refs = self._packs.index().find(keys)
        known = {number: ref for number, ref in enumerate(refs) if ref is not None}
        messages = self._packs.read([*known.values()], ["rejected"])["rejected"].to_pylist()
        for number, message in zip(known, messages, strict=True):
            if message is not None:
                problems.setdefault(number, self._rejected(message))
        return refs

    def add(self, keys: Sequence[str], values: Mapping[int, Value | Rejected], refs: Refs, problems: Problems) -> None:
        """Keep computed values, given by the number of their key; where they will be goes to `refs`."""
        sound = {number: checked(value, self._column) for number, value in values.items()}
        rejected = {number: value for number, value in sound.items() if isinstance(value, Rejected)}
        kept = {number: value for number, value in sound.items() if not isinstance(value, Unexpected)}
        messages = [rejected[n].message if n in rejected else None for n in kept]
        rows = {"key": [keys[n] for n in kept], "value": value_rows(kept.values()), "rejected": messages}
        for number, ref in zip(kept, self._writer.add(rows), strict=True):
            refs[number] = ref
        for number, value in rejected.items():
            problems.setdefault(number, self._rejected(value.message))

    def close(self) -> None:
        """Make what was added visible."""
        self._writer.close()

    def _rejected(self, message: str) -> Rejected:
        return Rejected(f"{self._column.name}: {message}")


class Features:
    """The computed columns of a table, in one worker."""

    def __init__(self, plan: FeaturePlan, table: str) -> None:
        self._extractors = plan.extractors(table)
        self._columns = {column.name: ColumnPacks(plan.lake, column, table) for column in plan.extracted(table)}
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
        refs = {name: packs.find(keys, problems) for name, packs in self._columns.items()}
        for begin in range(0, len(keys), self._batch):
            numbers = range(begin, min(begin + self._batch, len(keys)))
            missing = [n for n in numbers if any(found[n] is None for found in refs.values())]
            self._compute(keys, dict(zip(missing, read(missing), strict=True)), refs, problems)
            for n in numbers:
                yield problems.get(n) or tuple(ref for found in refs.values() if (ref := found[n]))

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
                self._columns[name].add(keys, lacking, refs[name], problems)

    def close(self) -> None:
        """Make what was computed visible."""
        for packs in self._columns.values():
            packs.close()


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


def checked_values(extractors: Sequence[Extractor], items: Sequence[Any]) -> dict[str, list[Value | Rejected]]:
    """Return the value of each item by column, as packs would keep them."""
    found: dict[str, list[Value | Rejected]] = {}
    for extractor in extractors:
        rows = extracted(extractor, items)
        for position, column in enumerate(extractor.columns):
            found[column.name] = [checked(row[position], column) for row in rows]
    return found
