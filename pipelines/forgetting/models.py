"""What models have made in a lake: links and indexes, in folders with their names."""

from collections.abc import Collection, Iterator

from schemas.lake import MANIFEST, Lake


def made_by_models(lake: Lake, names: Collection[str]) -> Iterator[str]:
    """Yield the folders of links and indexes, relative to the lake, that models made: `<model>-<version>`."""
    for kind in ("links", "indexes"):
        top = lake.root.child(kind)
        for dataset in top.names():
            for version in top.child(dataset).names():
                made = top.child(dataset, version).names()
                yield from (f"{kind}/{dataset}/{version}/{name}" for name in made if name in names)


def remove_made_by_models(lake: Lake, names: Collection[str]) -> list[str]:
    """Remove what models made, for good, and return the folders, relative to the lake."""
    folders = list(made_by_models(lake, names))
    for path in folders:
        folder = lake.root.child(*path.split("/"))
        if folder.exists(MANIFEST):
            folder.delete(MANIFEST)  # so that a reader does not find half of it
        folder.remove()
    return folders
