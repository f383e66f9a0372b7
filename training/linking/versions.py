"""A data set version to the links of its documents: which shards are to be linked, and the manifest at the end.

Whoever runs the shards (`training.shards`), the function is the same, and so are the bytes. A call that was killed is
repeated: linked shards are found, and the manifest is written when all are.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import read_manifest
from schemas.messages import BuildError, Passing, Say, UsageError, left_of
from schemas.parts import split_parts
from schemas.tables import schema_version
from schemas.versions import fingerprint
from training.data.loading import read_for_model
from training.link_steps import LinkSteps
from training.linking.links import Linker
from training.linking.records import LINK_SCHEMA, LINKED_SCHEMA, LinkCounts, LinksManifest, read_links
from training.linking.shards import (
    FAILURES,
    LINKS,
    RELINKED,
    LinkedShard,
    Linking,
    find_linked,
    fit_version,
    link_shard,
)
from training.model import LinkModel
from training.shards import filled_splits, run_shards

READERS = 16  # files of earlier calls that are read at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedVersion:
    """The links of a data set version.

    Attributes:
        manifest: of the links.
        output: its folder.
        shards: number of shards of the chosen splits.
        reused: number of those that were linked before.
        documents: of the shards that were linked now.
        seconds: that this took, the start of workers and the loading of the model included.
        steps: that were chosen on the version's documents; None: the model's own.
    """

    manifest: LinksManifest
    output: Folder
    shards: int
    reused: int
    documents: int
    seconds: float
    steps: LinkSteps | None

    def to_json(self) -> dict[str, Any]:
        """Return the numbers, of all splits that the folder holds."""
        return asdict(_sum(self.manifest.splits.values())) | {
            "model": self.manifest.model,
            "dataset": self.manifest.dataset,
            "fitted": self.manifest.fitted or None,
            "output": self.output.uri,
            "shards": self.shards,
            "shards_reused": self.reused,
            "seconds": round(self.seconds, 3),
            "documents_per_second": round(self.documents / self.seconds if self.documents else 0.0, 1),
        }


def prepare_linking(
    linker: Linker, lake: Lake, reference: str, *, output: Folder, with_documents: bool = False
) -> Linking:
    """Return the settings of a linking; a mistake that would stop every shard is an error here.

    Raises:
        NotFoundError: the data set or version is not there.
        UsageError: it lacks the vectors that the model reads.
    """
    manifest, folder = read_manifest(lake, reference)
    card = linker.model.card
    for split in filled_splits(manifest):
        read_for_model(card.config.reading, card.data, manifest, folder, split, shards=[])
    fitted = fit_version(linker.model, manifest, folder) if linker.options.can_fit else None
    made_by = {
        "model": linker.model.digest(),
        "data": hashlib.sha256(folder.read(MANIFEST)).hexdigest(),
        **linker.options.decisive(),
        "steps": None if fitted is None else fitted.to_json(),
        "schemas": [schema_version(LINK_SCHEMA), schema_version(LINKED_SCHEMA)],
    }
    return Linking(
        manifest=manifest,
        folder=folder,
        output=output,
        model=linker.uri,
        options=linker.options,
        made_by=fingerprint(made_by),
        with_documents=with_documents,
        fitted=fitted,
    )


def link_version(model: LinkModel, linking: Linking, *, splits: Sequence[str] = (), say: Say) -> LinkedVersion:
    """Link the shards of some splits (none named: all), but those that are linked already, and write the manifest.

    Raises:
        NotFoundError: a split is not there.
        UsageError: the folder holds other links.
        BuildError: no document at all could be linked.
    """
    chosen = dict.fromkeys(splits or filled_splits(linking.manifest))
    shards = [shard for split in chosen for shard in split_parts(linking.manifest, split)]
    earlier, there = _earlier(linking), linking.output.infos()
    _check_nothing_else(linking, there)
    whole = _whole_splits(linking, earlier, there)
    unknown = [shard for shard in shards if shard.split not in whole]
    with ThreadPoolExecutor(READERS) as pool:
        done = [linked for linked in pool.map(partial(find_linked, linking), unknown) if linked is not None]
    linked_before = {each.shard for each in done}
    left = [shard for shard in unknown if shard not in linked_before]
    if reused := len(shards) - len(left):
        say(f"reused: {reused} of {len(shards)} shards were linked before")
    if left and (earlier is None or any(shard.split in earlier.splits for shard in left)):
        linking.output.delete(MANIFEST)  # its counts are about to change
    began = time.monotonic()
    fresh = list(_with_progress(run_shards(model, partial(link_shard, linking), left), len(left), say)) if left else []
    seconds = time.monotonic() - began
    manifest = _manifest(linking, [*done, *fresh], earlier)
    _check_some_linked(linking, [*done, *fresh])
    linking.output.write(MANIFEST, manifest.to_json().encode())
    return LinkedVersion(
        manifest=manifest,
        output=linking.output,
        shards=len(shards),
        reused=reused,
        documents=sum(each.counts.documents for each in fresh),
        seconds=seconds,
        steps=None if linking.fitted is None else linking.fitted.steps,
    )


def _with_progress(linked: Iterable[LinkedShard], shards: int, say: Say) -> Iterator[LinkedShard]:
    """Yield linked shards, each with a line of progress."""
    began, documents = time.monotonic(), 0
    for number, each in enumerate(linked, start=1):
        documents += each.counts.documents
        seconds = time.monotonic() - began
        rate, left = documents / seconds, left_of(number, shards, seconds)
        say(Passing(f"{number} of {shards} shards linked: {documents} documents, {rate:.0f} documents/s{left}"))
        yield each


def _earlier(linking: Linking) -> LinksManifest | None:
    """Return the manifest of the same linking, where an earlier call wrote one.

    Raises:
        UsageError: the folder holds the links of another model or data set version.
    """
    if not linking.output.exists(MANIFEST):
        return None
    earlier = read_links(linking.output)
    if (earlier.model, earlier.dataset) != (linking.model, linking.reference):
        raise linking.other_links(f"links of {earlier.model} on {earlier.dataset}")
    return earlier if earlier.made_by == linking.made_by else None


def _whole_splits(linking: Linking, earlier: LinksManifest | None, there: Mapping[str, Any]) -> set[str]:
    """Return the splits whose files are all there, in the sizes that an earlier manifest says: none of them is read."""
    whole: set[str] = set()
    if earlier is None:
        return whole
    for split in earlier.splits:
        own = {entry.path: entry.bytes for entry in earlier.files if entry.path.split("/")[1] == split}
        is_whole = all(path in there and there[path].size == size for path, size in own.items())
        has_documents = any(path.startswith(f"{RELINKED}/") for path in own)
        if is_whole and (has_documents or not linking.with_documents):
            whole.add(split)
    return whole


def _check_nothing_else(linking: Linking, there: Iterable[str]) -> None:
    """Raise a UsageError where the output has links of shards that this data set version does not have."""
    manifest = linking.manifest
    own = {shard.path(LINKS) for split in filled_splits(manifest) for shard in split_parts(manifest, split)}
    for path in there:
        is_begun = path.rsplit("/", 1)[-1].startswith(".")  # by a call that was killed
        if path.startswith(f"{LINKS}/") and path not in own and not is_begun:
            raise UsageError(
                f"--output {linking.output.uri}: {path} is not of {linking.reference}; take another folder"
            )


def _manifest(linking: Linking, linked: Sequence[LinkedShard], earlier: LinksManifest | None) -> LinksManifest:
    """Return the manifest of linked shards, and of the splits an earlier call linked beside them."""
    names = sorted({each.shard.split for each in linked})
    splits = {name: _sum(each.counts for each in linked if each.shard.split == name) for name in names}
    files = {entry for each in linked for entry in each.files}
    kept = {name: counts for name, counts in (earlier.splits if earlier else {}).items() if name not in splits}
    files |= {entry for entry in (earlier.files if earlier else ()) if entry.path.split("/")[1] in kept}
    return LinksManifest(
        model=linking.model,
        dataset=linking.reference,
        made_by=linking.made_by,
        precision=linking.options.precision,
        fitted="" if linking.fitted is None else linking.fitted.words,
        splits={**kept, **splits},
        files=tuple(sorted(files)),
    )


def _sum(counts: Iterable[LinkCounts]) -> LinkCounts:
    parts = list(counts)
    failures, cautions = (
        dict(sorted(sum(map(Counter, each), Counter[str]()).items()))
        for each in ([part.failures for part in parts], [part.cautions for part in parts])
    )
    documents, links = sum(part.documents for part in parts), sum(part.links for part in parts)
    return LinkCounts(documents=documents, links=links, failures=failures, cautions=cautions)


def _check_some_linked(linking: Linking, linked: Sequence[LinkedShard]) -> None:
    total = _sum(each.counts for each in linked)
    failed = sum(total.failures.values())
    if failed and failed == total.documents:
        reasons = ", ".join(f"{reason} {count}" for reason, count in total.failures.items())
        where = f"see {linking.output.uri}/{FAILURES}"
        raise BuildError(f"{linking.reference}: none of {failed} documents could be linked ({reasons}); {where}")
