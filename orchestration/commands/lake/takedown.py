from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.commands import options
from schemas.errors import UsageError
from schemas.lake import Lake

Named = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID|URL|HASH", help="As in a takedown list: id:, url:, domain:, sha256:, phash:."),
]
ListPath = Annotated[str, typer.Option("--list", help="Path or URI of a takedown list.")]


def command(
    lake: options.LakePath, named: Named = None, listed: ListPath = "", tracking: options.Tracking = None
) -> options.Summaries:
    """List every version, index, folder of links and model that holds a document, a page or an image."""
    from pipelines.forgetting.holdings import find_holdings

    home = options.known_lake(lake)
    found = find_holdings(home, takedowns(named, listed))
    rows = holding_rows(found.holdings, tracking)
    values = {"versions": rows, "images": sorted(found.images), "shared_images": sorted(found.shared)}
    lines = [*holding_lines(rows, found.shared), *not_covered_lines(found.not_covered)]
    yield lines, values | {"not_covered": list(found.not_covered)}


def takedowns(named: Iterable[str] | None, listed: str) -> Any:
    """Return the entries of the command line and of a list."""
    from pipelines.sources.takedowns import Takedowns, parse_takedowns, read_takedowns
    from pipelines.sources.takedowns import named as line_of

    given = parse_takedowns((line_of(text).encode() for text in named or ()), name="argument")
    of_list = read_takedowns(listed) if listed else Takedowns()
    entries = tuple(sorted({*given.entries, *of_list.entries}))
    if not entries:
        raise UsageError("expected an id, a URL or a hash, or --list FILE; found none")
    return Takedowns(entries)


def holding_rows(holdings: Iterable[Any], tracking: str | None) -> list[dict[str, Any]]:
    """Return what holds the entries, JSON-ready, with the models that were trained on it."""
    names = ("dataset", "version", "documents", "images", "links", "indexes")
    return [
        {name: getattr(each, name) for name in names} | {"models": models_of(tracking, each.dataset, each.version)}
        for each in holdings
    ]


def models_of(tracking: str | None, dataset: str, version: str) -> list[str]:
    """Return the addresses of the registered models that were trained on a version; without a store there are none."""
    from training.mlflow.runs import connect, tracking_uri

    uri = tracking_uri(tracking)
    if uri.startswith(options.SQLITE) and not Path(uri.removeprefix(options.SQLITE)).exists():
        return []
    from training.mlflow.registry import trained_on

    return [each.uri for each in trained_on(connect(uri), dataset, version)]


def taint_models(lake: Lake, rows: Iterable[dict[str, Any]], tracking: str | None) -> None:
    """Let the models that were trained on what is taken out be tainted."""
    held = [row for row in rows if row["models"]]
    if held:
        from training.mlflow.runs import open_tracking
        from training.mlflow.taints import taint

        client = open_tracking(tracking)
        for row in held:
            went = {"documents": len(row["documents"]), "images": len(row["images"])}
            taint(client, lake, row["dataset"], row["version"], **went)


def holding_lines(rows: Iterable[dict[str, Any]], shared: Iterable[str]) -> Iterator[str]:
    """Yield what holds the entries, and which images stay."""
    none = True
    for row in rows:
        none = False
        yield f"{row['dataset']}@{row['version']}: {len(row['documents'])} documents, {len(row['images'])} images"
        yield from (f"  document {each}" for each in row["documents"])
        yield from (f"  image {each}" for each in row["images"])
        for kind in ("links", "indexes", "models"):
            yield from (f"  {kind}: {each}" for each in row[kind])
    if none:
        yield "no version holds any of it"
    yield from (f"image {each} stays: other documents show it" for each in sorted(shared))


def not_covered_lines(versions: Iterable[str]) -> Iterator[str]:
    """Yield what was not looked at: other lakes, and what builds rejected of which there is no ledger."""
    yield "not looked at: copies in other lakes, exports, and files outside the lake"
    for version in versions:
        yield f"{version}: its build has no ledger: what it rejected is found by address and hash alone, not by id"
