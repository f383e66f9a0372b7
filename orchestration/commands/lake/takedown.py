from collections.abc import Iterable, Iterator, Sequence
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
    yield [*store_lines(rows, tracking), *holding_lines(rows, found.shared)], values


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
    from training.mlflow.stored import is_missing, tracking_uri

    uri = tracking_uri(tracking)
    if is_missing(uri):
        return []
    from training.mlflow.registry import trained_on
    from training.mlflow.runs import connect

    return [each.uri for each in trained_on(connect(uri), dataset, version)]


def store_lines(rows: Sequence[Any], tracking: str | None) -> list[str]:
    """Return a warning where something is held, and no store says which models were trained on it."""
    from training.mlflow.stored import is_missing, tracking_uri

    uri = tracking_uri(tracking)
    if not rows or not is_missing(uri):
        return []
    return [f"warning: {uri} is not there, so models that were trained on this are not known; name --tracking-uri"]


def taint_models(lake: Lake, rows: Iterable[dict[str, Any]], tracking: str | None) -> None:
    """Let the models that were trained on what is taken out be tainted."""
    from training.mlflow.stored import is_missing, tracking_uri

    rows, uri = list(rows), tracking_uri(tracking)
    if rows and not is_missing(uri):
        from training.mlflow.runs import connect
        from training.mlflow.taints import taint

        client = connect(uri)
        for row in rows:
            went = {"documents": len(row["documents"]), "images": len(row["images"])}
            row["models"] = [each.uri for each in taint(client, lake, row["dataset"], row["version"], **went)]


def tainted_in(lake: Lake) -> set[str]:
    """Return the models that statements in a lake say are tainted, as the folders are named that they made."""
    from training.promotions.chain import Chain
    from training.promotions.record import TAINTED

    chains = (Chain(lake.promotions(name)) for name in lake.root.child("promotions").names())
    return {
        f"{each.model['name']}-{each.version}"
        for chain in chains
        for each in chain.statements()
        if each.event == TAINTED
    }


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
