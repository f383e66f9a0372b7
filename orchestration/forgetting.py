"""Commands about what may not be used: where a document is and came from, what holds something, and its removal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.options import JsonOption, LakeOption
from schemas.console import Console
from schemas.errors import UsageError
from schemas.lake import Lake
from training import options

Named = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID|URL|HASH", help="As in a takedown list: id:, url:, domain:, sha256:, phash:."),
]
ListOption = Annotated[str, typer.Option("--list", help="Path or URI of a takedown list.")]


def provenance(
    reference: Annotated[str, typer.Argument(help="NAME: all its versions; or NAME@VERSION")],
    document: Annotated[str, typer.Argument(help="Id of the document.")],
    lake: LakeOption,
    tracking: options.Tracking = None,
    is_json: JsonOption = False,
) -> None:
    """Tell everything known of a document: addresses, answers, rights, what it was made with and went into."""
    from pipelines.forgetting.provenance import provenance as known_of
    from pipelines.forgetting.provenance import provenance_lines

    known = known_of(Lake.at(lake), reference, document)
    for held in known["versions"]:
        held["models"] = _models(tracking, known["dataset"], held["version"])
    Console(is_json=is_json).summarise(provenance_lines(known), known)


def takedown(
    lake: LakeOption,
    named: Named = None,
    listed: ListOption = "",
    tracking: options.Tracking = None,
    is_json: JsonOption = False,
) -> None:
    """Name every version, index, folder of links and model that holds a document, a page or an image."""
    from pipelines.forgetting.holdings import find_holdings

    at = Lake.at(lake)
    at.check_exists()
    found = find_holdings(at, _takedowns(named, listed))
    rows = [
        dataclasses.asdict(each) | {"models": _models(tracking, each.dataset, each.version)} for each in found.holdings
    ]
    values = {"versions": rows, "images": sorted(found.images), "shared_images": sorted(found.shared)}
    Console(is_json=is_json).summarise(_holding_lines(rows, found.shared), values)


def forget(  # noqa: PLR0917 - options by name
    lake: LakeOption,
    named: Named = None,
    listed: ListOption = "",
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Remove it, for good; otherwise only say what would go.")
    ] = False,
    tracking: options.Tracking = None,
    is_json: JsonOption = False,
) -> None:
    """Remove what is named from a lake: captures, copies, features, indexes, links, and rows of versions.

    A version that held it is replaced by one without it. Models are not touched; those that were trained on it are
    named. Put the same entries on the takedown list of later builds, or they bring it back.
    """
    from pipelines.forgetting.forget import forget as forget_in

    at, console = Lake.at(lake), Console(is_json=is_json)
    at.check_exists()
    done = forget_in(at, _takedowns(named, listed), dry_run=not is_sure, say=console.say)
    rows = [
        dataclasses.asdict(each) | {"models": _models(tracking, each.dataset, each.version)}
        for each in done.found.holdings
    ]
    values = {
        "dry_run": not is_sure,
        "versions": rows,
        "images": sorted(done.found.images),
        "shared_images": sorted(done.found.shared),
        "captures": [dataclasses.asdict(each) for each in done.captures],
        "files": list(done.files),
        "packs": list(done.packs),
        "replaced": dict(done.replaced),
    }
    went = "went" if is_sure else "would go"
    lines = [
        *_holding_lines(rows, done.found.shared),
        *(f"raw/{each.source}: {each.records} captures and {each.rows} notes {went}" for each in done.captures),
        *(f"captured file {url} {went}" for url in done.files),
        *(f"{path}: rows {went}" for path in done.packs),
        *(f"{old} was replaced by {new or 'nothing: no document was left'}" for old, new in done.replaced if is_sure),
        "it is gone" if is_sure else "nothing was changed; --yes removes it",
    ]
    console.summarise(lines, values)


def _takedowns(named: Iterable[str] | None, listed: str) -> Any:
    from pipelines.sources.takedowns import Takedowns, parse_takedowns, read_takedowns
    from pipelines.sources.takedowns import named as line_of

    given = parse_takedowns((line_of(text).encode() for text in named or ()), name="argument")
    of_list = read_takedowns(listed) if listed else Takedowns()
    entries = tuple(sorted({*given.entries, *of_list.entries}))
    if not entries:
        raise UsageError("expected an id, a URL or a hash, or --list FILE")
    return Takedowns(entries)


def _models(tracking: str | None, dataset: str, version: str) -> list[str]:
    """Return the addresses of the registered models that were trained on a version; without a store there are none."""
    from training.mlflow.runs import connect, tracking_uri

    uri = tracking_uri(tracking)
    if uri.startswith(options.SQLITE) and not Path(uri.removeprefix(options.SQLITE)).exists():
        return []
    from training.mlflow.registry import trained_on

    return [each.uri for each in trained_on(connect(uri), dataset, version)]


def _holding_lines(rows: Iterable[dict[str, Any]], shared: Iterable[str]) -> Iterator[str]:
    none = True
    for row in rows:
        none = False
        yield f"{row['dataset']}@{row['version']}: {len(row['documents'])} documents, {len(row['images'])} images"
        yield from (f"  document {each}" for each in row["documents"])
        yield from (f"  image {each}" for each in row["images"])
        for kind in ("links", "indexes", "models"):
            yield from (f"  {kind}: {each}" for each in row[kind])
    if none:
        yield "no version holds it"
    yield from (f"image {each} stays: other documents show it" for each in sorted(shared))
