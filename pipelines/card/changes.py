"""What changed from one version of a data set to the next, and why; and what two versions share.

Documents came, went, are in another split, or have another text. The reason why a document is not in a version is in
the version's own failure rows; without a row, the source did not have the document. The newsroom's pages and Dagster's
page show the changes.

What two versions share is known by exact keys: ids, addresses and words of documents, contents and addresses of images.
A key is kept as 16 bytes of its digest, so that two versions of a million documents each fit into memory.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.partitions.columns import Bytes
from pipelines.splits.shared import texts_of
from schemas.duplicates import LeakKind
from schemas.failures import Failure
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import FileEntry, Manifest, diff, read_manifest, table_parts
from schemas.parts import read_part

NOT_IN_SOURCE = "not in the source"
FILES = "files."  # how lines of `diff` about files begin: they follow from the rest
DOCUMENTS_SHOWN, SETTINGS_SHOWN = 30, 30  # in Markdown
_ID, _RECORD = "id", "provenance.record_id"
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChange:
    """A document that is in one of two versions only, or in different splits of them.

    Attributes:
        document: its id.
        before: split in the earlier version; None: it is not in it.
        after: split in the later one, likewise.
        reason: why it is not in one of them.
        message: of the failure row, where there is one.
    """

    document: str
    before: str | None
    after: str | None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs between two versions of a data set.

    Attributes:
        dataset: its name.
        before: the earlier version.
        after: the later one.
        added: documents of the later version only, by id, with the reason why the earlier one lacks them.
        removed: documents of the earlier version only, with the reason why the later one lacks them.
        resplit: documents that are in another split.
        rewritten: documents whose sentences differ.
        settings: a line a difference of settings, inputs, counts and features.
    """

    dataset: str
    before: str
    after: str
    added: tuple[DocumentChange, ...]
    removed: tuple[DocumentChange, ...]
    resplit: tuple[DocumentChange, ...]
    settings: tuple[str, ...]
    rewritten: tuple[DocumentChange, ...] = ()

    @property
    def is_nothing(self) -> bool:
        return not (self.added or self.removed or self.resplit or self.rewritten or self.settings)


def changes_between(lake: Lake, dataset: str, before: str, after: str) -> Changes:
    """Return what changed from a version of a data set to another.

    Raises:
        NotFoundError: one of them is not there.
        IntegrityError: a part is damaged.
    """
    (old, old_folder), (new, new_folder) = (read_manifest(lake, f"{dataset}@{each}") for each in (before, after))
    earlier, later = _moved((old, old_folder), (new, new_folder))
    added, removed = later.keys() - earlier.keys(), earlier.keys() - later.keys()
    why_not_before = _failures(old, old_folder, {key: later[key] for key in added})
    why_not_after = _failures(new, new_folder, {key: earlier[key] for key in removed})
    lines = (line for line in diff(old, new) if not line.startswith(FILES))
    return Changes(
        dataset=dataset,
        before=before,
        after=after,
        added=tuple(_change(key, None, later[key], why_not_before) for key in sorted(added)),
        removed=tuple(_change(key, earlier[key], None, why_not_after) for key in sorted(removed)),
        resplit=_differing(earlier, later, lambda known: known.split),
        rewritten=_differing(earlier, later, lambda known: known.text),
        settings=tuple(lines),
    )


def version_before(lake: Lake, dataset: str, version: str) -> str | None:
    """Return the version that was made last before another, by when their manifests were written; None: the first."""
    made = {each: lake.dataset(dataset, each).stamp(MANIFEST)[1] for each in lake.versions(dataset)}
    earlier = [each for each in made if each != version and made[each] <= made[version]]
    return max(earlier, key=lambda each: (made[each], each), default=None)


def as_markdown(found: Changes) -> str:
    """Return changes as Markdown, the first of each kind."""
    if found.is_nothing:
        return f"No difference to {found.before}."
    lines = [f"Since {found.before}:"]
    for title, documents in (
        ("added", found.added),
        ("removed", found.removed),
        ("in another split", found.resplit),
        ("with another text", found.rewritten),
    ):
        if documents:
            lines += ["", f"**{len(documents)} documents {title}**{_reasons(documents)}", ""]
            lines += [f"- {_line(each)}" for each in documents[:DOCUMENTS_SHOWN]]
            lines += [f"- … and {len(documents) - DOCUMENTS_SHOWN} more"] * (len(documents) > DOCUMENTS_SHOWN)
    if found.settings:
        lines += ["", "**Settings, inputs and counts**", ""]
        lines += [f"- {as_code(line)}" for line in islice(found.settings, SETTINGS_SHOWN)]
    return "\n".join(lines)


def reasons(documents: tuple[DocumentChange, ...]) -> dict[str, int]:
    """Return how many documents were added or removed for each reason, the commonest first."""
    return dict(Counter(each.reason for each in documents).most_common())


def _reasons(documents: tuple[DocumentChange, ...]) -> str:
    found = [f"{reason} {count}" for reason, count in reasons(documents).items() if reason]
    return f": {', '.join(found)}" if found else ""


def _line(change: DocumentChange) -> str:
    if change.before == change.after:
        return f"{as_code(change.document)} ({change.after})"
    if change.before and change.after:
        return f"{as_code(change.document)}: {change.before} → {change.after}"
    message = f": {as_code(change.message)}" if change.message else ""
    return f"{as_code(change.document)} ({change.before or change.after}): {change.reason}{message}"


def as_code(text: str) -> str:
    """Return a text that others wrote as code of Markdown, which nothing in it ends."""
    plain = " ".join(text.replace("`", "'").split())
    return f"`{plain or ' '}`"


@dataclass(frozen=True, slots=True)
class _Known:
    split: str
    record: str
    text: bytes  # a digest


def _differing(
    earlier: Mapping[str, _Known], later: Mapping[str, _Known], of: Callable[[_Known], object]
) -> tuple[DocumentChange, ...]:
    """Return the documents of both versions of which something differs, by id."""
    return tuple(
        DocumentChange(document=key, before=earlier[key].split, after=later[key].split)
        for key in sorted(earlier.keys() & later.keys())
        if of(earlier[key]) != of(later[key])
    )


def _moved(*versions: tuple[Manifest, Folder]) -> tuple[dict[str, _Known], dict[str, _Known]]:
    """Return the documents of each of two versions that the other has not, or elsewhere, or with another text.

    Which shard a document is in follows from its id and their number: as long as that is the same, shards are compared
    one by one, and nothing else is in memory.
    """
    found: tuple[dict[str, _Known], dict[str, _Known]] = ({}, {})
    for split in dict.fromkeys(name for manifest, _ in versions for name in manifest.splits):
        parts = [manifest.parts("documents", split) for manifest, _ in versions]
        is_alike = len(parts[0]) == len(parts[1])
        for shards in zip(*([[part] for part in each] for each in parts), strict=True) if is_alike else [parts]:
            if [part.sha256 for part in shards[0]] == [part.sha256 for part in shards[1]]:
                continue
            known = [_known(split, folder, own) for (_, folder), own in zip(versions, shards, strict=True)]
            for rows, own, other in zip(found, known, known[::-1], strict=True):
                rows |= {
                    key: document
                    for key, document in own.items()
                    if key not in other or other[key].text != document.text
                }
    return found


def _known(split: str, folder: Folder, parts: Sequence[FileEntry]) -> dict[str, _Known]:
    """Return the documents of some parts of a split, by id."""
    found: dict[str, _Known] = {}
    for part in parts:
        table = read_part(folder, part, [_ID, _RECORD, "sentences"])
        records = pa.concat_arrays(table.column("provenance").chunks).field("record_id").to_pylist()
        rows = zip(table.column(_ID).to_pylist(), records, _text_digests(table.column("sentences")), strict=True)
        found |= {key: _Known(split, record, text) for key, record, text in rows}
    return found


def _text_digests(column: pa.ChunkedArray) -> Iterator[bytes]:
    """Yield a digest of the sentences of each document, read where they lie."""
    for chunk in column.chunks:
        texts = pc.struct_field(chunk.flatten(), "text")
        ends = np.cumsum(np.concatenate([[0], pc.binary_length(texts).to_numpy()]))
        data = memoryview(b"".join(texts.cast(pa.binary()).to_pylist()))
        documents = np.cumsum(np.concatenate([[0], pc.list_value_length(chunk).to_numpy()]))
        for first, last in zip(documents[:-1].tolist(), documents[1:].tolist(), strict=True):
            lengths = ends[first : last + 1] - ends[first]
            yield hashlib.blake2b(
                lengths.tobytes() + data[ends[first] : ends[last]], digest_size=_DIGEST_BYTES
            ).digest()


def _failures(manifest: Manifest, folder: Folder, documents: Mapping[str, _Known]) -> Mapping[str, Failure]:
    """Return the first failure of some documents' records; that of an image counts for one that has none of its own."""
    wanted = documents.keys() | {known.record for known in documents.values()}
    own: dict[str, Failure] = {}
    of_images: dict[str, Failure] = {}
    for table in table_parts(manifest, folder, "failures") if wanted else ():
        rows = table.filter(pc.is_in(table["record_id"], pa.array(sorted(wanted), pa.string())))
        for failure in (Failure(**row) for row in rows.to_pylist()):
            (own if failure.image is None else of_images).setdefault(failure.record_id, failure)
    return of_images | own


def _change(key: str, before: _Known | None, after: _Known | None, why: Mapping[str, Failure]) -> DocumentChange:
    known = before or after
    failure = why.get(key) or why.get(known.record if known else key)
    return DocumentChange(
        document=key,
        before=None if before is None else before.split,
        after=None if after is None else after.split,
        reason=NOT_IN_SOURCE if failure is None else str(failure.reason),
        message="" if failure is None else failure.message,
    )


EXAMPLES = 10
_OF_TEXTS = {LeakKind.SENTENCE: "sentences", LeakKind.DOCUMENT_TEXT: "texts of documents"}
_THINGS = ("ids", "addresses of pages", *_OF_TEXTS.values(), "contents of images", "addresses of images")


@dataclass(frozen=True, slots=True)
class Overlap:
    """Of one kind of thing, how many different ones two versions have.

    Attributes:
        thing: what is counted.
        first: in the first version alone.
        both: in both.
        second: in the second version alone.
        examples: some of those in both, as they are written in the second version.
    """

    thing: str
    first: int
    both: int
    second: int
    examples: tuple[str, ...]


def overlaps(first: Manifest, second: Manifest, folders: tuple[Folder, Folder]) -> list[Overlap]:
    """Return what two versions share, a row a kind of thing.

    Raises:
        IntegrityError: a part is damaged.
    """
    left, right = _digests(first, folders[0]), _digests(second, folders[1])
    common = {thing: np.intersect1d(left[thing], right[thing], assume_unique=True) for thing in _THINGS}
    wanted, shown = {thing: {*common[thing].tolist()} for thing in _THINGS}, defaultdict[str, set[str]](set)
    if any(wanted.values()):
        for thing, key in _keys(second, folders[1]):
            if _digest(key).rstrip(b"\0") in wanted[thing]:
                shown[thing] = {*sorted(shown[thing] | {key})[:EXAMPLES]}
    return [
        Overlap(
            thing,
            len(left[thing]) - len(common[thing]),
            len(common[thing]),
            len(right[thing]) - len(common[thing]),
            tuple(sorted(shown[thing])),
        )
        for thing in _THINGS
    ]


def _digests(manifest: Manifest, folder: Folder) -> dict[str, Bytes]:
    """Return the sorted digests of a version's different keys, by thing."""
    packed = defaultdict[str, bytearray](bytearray)
    for thing, key in _keys(manifest, folder):
        packed[thing] += _digest(key)
    return {thing: np.unique(np.frombuffer(packed[thing], f"S{_DIGEST_BYTES}")) for thing in _THINGS}


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


def _keys(manifest: Manifest, folder: Folder) -> Iterator[tuple[str, str]]:
    """Yield thing and key of all that a version has; a key may come again."""
    for entry in manifest.parts("documents"):
        for row in read_part(folder, entry, ["id", "sentences", "images", "provenance"]).to_pylist():
            yield "ids", row["id"]
            if row["provenance"]["url"]:
                yield "addresses of pages", row["provenance"]["url"]
            for kind, text, _ in texts_of(sentence["text"] for sentence in row["sentences"]):
                yield _OF_TEXTS[kind], text
            for image in row["images"]:
                yield "contents of images", image["hash"]
                if image["source"]:
                    yield "addresses of images", image["source"]
