"""What a lake has of documents, pages or images, the models that were trained on it, and its removal."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pipelines.forgetting.forget import Forgotten, forget
from pipelines.forgetting.holdings import NamedContent, find_holdings, made_by_models, remove_made_by_models
from pipelines.sources.takedowns import Takedowns, named, parse_takedowns, read_takedowns
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import Say, UsageError, counted
from training.data.mapped import forget_version
from training.mlflow.stored import is_missing, tracking_uri
from training.promotions.record import TAINTED, trusted_statements

_FIELDS = ("dataset", "version", "documents", "images", "links", "indexes")


@dataclass(frozen=True, slots=True)
class Held:
    """What a lake holds of a takedown list.

    Attributes:
        content: what is named.
        versions: for each version that holds some of it, JSON-ready: what, and the models that were trained on it.
        missing_store: address of the store of models that is not there; empty: it is there.
    """

    content: NamedContent
    versions: list[dict[str, Any]]
    missing_store: str = ""

    def lines(self) -> Iterator[str]:
        """Yield what holds it, and which images stay."""
        if self.versions and self.missing_store:
            yield (
                f"warning: {self.missing_store} is not there, so models that were trained on this are not known; name "
                "--tracking-uri"
            )
        for row in self.versions:
            documents, images = counted(len(row["documents"]), "document"), counted(len(row["images"]), "image")
            yield f"{row['dataset']}@{row['version']}: {documents}, {images}"
            yield from (f"  document {each}" for each in row["documents"])
            yield from (f"  image {each}" for each in row["images"])
            for kind in ("links", "indexes", "models"):
                yield from (f"  {kind}: {each}" for each in row[kind])
        if not self.versions:
            yield "no version contains any of it"
        yield from (f"image {each} stays: other documents show it" for each in sorted(self.content.shared))
        yield (
            "not searched: copies in other lakes, exports, files outside the lake, databases named by --store; running "
            "pages keep their index until they are restarted"
        )
        for version in self.content.not_covered:
            yield f"{version}: its build has no ledger: rejected records are found by address and hash, not by id"

    def to_json(self) -> dict[str, Any]:
        shared = {"images": sorted(self.content.images), "shared_images": sorted(self.content.shared)}
        return {"versions": self.versions, "not_covered": list(self.content.not_covered)} | shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What was removed from a lake, or would be.

    Attributes:
        held: what held something of it.
        done: what went of the pipeline's.
        made_by_models: folders of links and indexes of tainted models, relative to the lake.
        on_pages: rows of the pages' database that named something of it.
        is_dry_run: whether nothing was changed.
    """

    held: Held
    done: Forgotten
    made_by_models: list[str]
    on_pages: int
    is_dry_run: bool

    @property
    def is_any(self) -> bool:
        """Return whether anything of it was found."""
        return self.done.is_any or bool(self.made_by_models or self.on_pages)

    def lines(self) -> Iterator[str]:
        """Yield what went, or would go."""
        verb = "would be removed" if self.is_dry_run else "were removed"
        yield from self.held.lines()
        yield from (
            f"raw/{each.source}: {each.records} captures and {each.rows} notes {verb}" for each in self.done.captures
        )
        yield from (f"captured file {url}: {verb}" for url in self.done.files)
        yield from (f"{path}: rows {verb}" for path in self.done.packs)
        yield from (f"{path}: the index, which has a row of it, {verb}" for path in self.done.indexes)
        yield from (f"{path}: what a tainted model made {verb}" for path in self.made_by_models)
        if self.on_pages:
            yield f"decisions, labels, rankings and uploads of the pages: {counted(self.on_pages, 'row')} {verb}"
        if not self.is_any:
            yield "nothing of it was found in this lake"
            return
        if self.is_dry_run:
            yield "nothing was changed; --yes removes it"
            return
        yield from (
            f"{old} was replaced by {new or 'nothing: no document was left'}" for old, new in self.done.replaced
        )
        yield (
            "all of it is removed from captures, copies, features, versions, links, indexes and the pages' database of "
            "this lake"
        )

    def to_json(self) -> dict[str, Any]:
        return self.held.to_json() | {
            "dry_run": self.is_dry_run,
            "captures": self.done.captures,
            "files": self.done.files,
            "packs": self.done.packs,
            "indexes": self.done.indexes,
            "replaced": dict(self.done.replaced),
            "made_by_models": self.made_by_models,
            "on_pages": self.on_pages,
            "found": self.is_any,
        }


def read_entries(given: Iterable[str] | None, listed: str) -> Takedowns:
    """Return the entries that are given and those of a list, a path or URI; "": none.

    Raises:
        UsageError: there is none, or one cannot be read.
    """
    own = parse_takedowns((named(text).encode() for text in given or ()), name="argument")
    entries = tuple(sorted({*own.entries, *(read_takedowns(listed) if listed else Takedowns()).entries}))
    if not entries:
        raise UsageError("expected an id, a URL or a hash, or --list FILE; found none")
    return Takedowns(entries)


def find_held(lake: Lake, entries: Takedowns, tracking: str | None) -> Held:
    """Return what a lake holds of a takedown list, with the models of an MLflow store that were trained on it."""
    return _with_models(find_holdings(lake, entries), tracking)


def remove_held(
    lake: Lake, entries: Takedowns, *, is_dry_run: bool, with_models: bool, tracking: str | None, say: Say
) -> Removed:
    """Remove what a takedown list names from a lake, for good, and taint the models that were trained on it.

    Args:
        lake: the lake.
        entries: of the list.
        is_dry_run: whether all of it is only found.
        with_models: whether links and indexes of these models are removed, too.
        tracking: MLflow's address; None: the store of this folder, if there is one.
        say: takes a line of progress.

    Raises:
        HeldError: a build is under way.
    """
    tainted: list[Held] = []  # one, unless nothing is changed

    def taint_models(content: NamedContent) -> None:
        held = _with_models(content, tracking)
        tainted.append(held)
        _taint_models(lake, held, tracking)
        for holding in content.holdings:
            forget_version(read_manifest(lake, holding.reference)[0])

    done = forget(lake, entries, dry_run=is_dry_run, before=taint_models, say=say)
    for each in tainted:
        _taint_models(lake, each, tracking)  # those, too, that were registered while it was removed
    held = _with_models(done.found, tracking) if is_dry_run else tainted[0]
    of_versions = {"-".join(uri.split("/")[1:]) for row in held.versions for uri in row["models"]}
    # With those of a call that was killed before it came here.
    models = of_versions | _tainted_in(lake) if with_models else set()
    made = list(made_by_models(lake, models)) if is_dry_run else remove_made_by_models(lake, models)
    rows = _forget_on_pages(lake, held.content, is_dry_run=is_dry_run)
    return Removed(held=held, done=done, made_by_models=made, on_pages=rows, is_dry_run=is_dry_run)


def _forget_on_pages(lake: Lake, content: NamedContent, *, is_dry_run: bool) -> int:
    """Take what is named out of the database of the pages that lies in a lake; return how many rows named it."""
    local = lake.root.local
    database = None if local is None else local / "pages" / "pages.sqlite"
    if database is None or not database.is_file():
        return 0
    from newsroom.decisions.database import forget_on_pages

    address = f"sqlite:///{database.absolute()}"
    return forget_on_pages(address, content.documents, content.images, is_dry_run=is_dry_run)


def _with_models(content: NamedContent, tracking: str | None) -> Held:
    uri = tracking_uri(tracking)
    rows = ({name: getattr(each, name) for name in _FIELDS} for each in content.holdings)
    versions = [row | {"models": models_of(tracking, row["dataset"], row["version"])} for row in rows]
    return Held(content, versions, missing_store=uri if is_missing(uri) else "")


def models_of(tracking: str | None, dataset: str, version: str) -> list[str]:
    """Return the addresses of the registered models that were trained on a version; without a store there are none."""
    uri = tracking_uri(tracking)
    if is_missing(uri):
        return []
    from training.mlflow.registry import versions
    from training.mlflow.runs import connect

    return [each.uri for each in versions(connect(uri), dataset=dataset, dataset_version=version)]


def _taint_models(lake: Lake, held: Held, tracking: str | None) -> None:
    """Let the models that were trained on what is removed be tainted; they are noted with the versions."""
    if not held.versions or held.missing_store:
        return
    from training.mlflow.champions import taint
    from training.mlflow.runs import connect

    client = connect(tracking_uri(tracking))
    for row in held.versions:
        went = {"documents": len(row["documents"]), "images": len(row["images"])}
        row["models"] = [each.uri for each in taint(client, lake, row["dataset"], row["version"], **went)]


def _tainted_in(lake: Lake) -> set[str]:
    """Return the models that statements in a lake say are tainted, as the folders are named that they made."""
    chains = (trusted_statements(lake.promotions(name)) for name in lake.root.child("promotions").names())
    return {f"{each.model['name']}-{each.version}" for chain in chains for each in chain if each.event == TAINTED}
