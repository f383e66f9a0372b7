from dataclasses import asdict
from shlex import join
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.console import counted
from schemas.documents import Split
from schemas.lake import Folder, Lake


def command(
    lake: options.LakePath,
    output: Annotated[str, typer.Option(metavar="DIR", help="Folder for documents.jsonl and the pictures.")],
    store: options.Store = "",
    split: Annotated[
        str | None,
        typer.Option(
            callback=options.known_split,
            help="Put all documents into train, val or test; by default the build divides them.",
        ),
    ] = None,
    as_pairs: Annotated[
        bool,
        typer.Option("--pairs", help="Write each chosen picture as a document of its own, for objectives of pairs."),
    ] = False,
) -> options.Summaries:
    """Write decisions as documents with links, which `multilink build documents` reads.

    Chosen pictures are linked to every text of their article; pictures rejected as not fitting stand beside them
    without a link; corrected links replace those of their document.
    """
    from newsroom.decisions.export import export
    from newsroom.decisions.log import opened_log

    with opened_log(lake, store) as log:
        chosen = None if split is None else Split(split)
        made = export(log, Lake.at(lake), Folder(output), split=chosen, as_pairs=as_pairs)
    arguments = made.build_arguments(lake)
    left_out = ", ".join(f"{reason} {count}" for reason, count in made.left_out.items())
    of_articles = f"{counted(made.articles, 'article')}, {counted(made.documents, 'corrected document')}"
    lines = [
        f"{of_articles}, {counted(made.links, 'link')}, {counted(made.pictures, 'picture')}: {made.path}",
        *([f"left out: {left_out}"] if left_out else []),
        f"build it: {join(['multilink', *arguments])}",
    ]
    yield lines, asdict(made) | {"build": arguments}
