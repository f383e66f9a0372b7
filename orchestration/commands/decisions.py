"""Look at what editors decided, and use it."""

from collections import Counter
from dataclasses import asdict
from shlex import join
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.documents import Split
from schemas.lake import Folder, Lake
from schemas.messages import aligned, counted

SHOWN_NOTE = 40


def list_command(
    lake: options.LakePath,
    store: options.Store = "",
    article: Annotated[
        str, typer.Option(help="Only decisions on the article with this digest, or its first digits.")
    ] = "",
) -> options.Summaries:
    """List decisions in the order they were made; those of blind comparisons do not name the model of the picture."""
    from newsroom.decisions.store import open_store

    with open_store(lake, store) as log:
        found = [each for each in log.decisions() if each.article.startswith(article)]
    head = ("number", "at", "who", "action", "article", "document", "image", "why")
    rows = [
        (
            str(each.number),
            each.at[:19],
            each.who,
            str(each.action),
            each.article[:16],
            each.document,
            each.image[:16],
            " ".join(filter(None, (each.reason, each.note[:SHOWN_NOTE]))),
        )
        for each in found
    ]
    counts = Counter(str(each.action) for each in found)
    totals = ", ".join(f"{action} {count}" for action, count in counts.most_common()) or "no decision"
    lines = [*(aligned([head, *rows]) if rows else []), totals]
    yield lines, {"decisions": found}


def export_command(
    lake: options.LakePath,
    output: Annotated[str, typer.Option(metavar="DIR", help="Folder for documents.jsonl and the pictures.")],
    store: options.Store = "",
    split: Annotated[
        Split | None, typer.Option(help="Put all documents into this split; by default the build divides them.")
    ] = None,
    as_pairs: Annotated[
        bool,
        typer.Option("--pairs", help="Write one document for each chosen picture, as objectives of pairs need."),
    ] = False,
) -> options.Summaries:
    """Write decisions as documents with links, which `multilink build documents` reads.

    Chosen pictures are linked to every text of their article; rejected pictures that do not fit are
    included without a link.
    """
    from newsroom.decisions.export import export
    from newsroom.decisions.store import open_store

    with open_store(lake, store) as log:
        made = export(log, Lake.at(lake), Folder(output), split=split, as_pairs=as_pairs)
    arguments = made.build_arguments(lake)
    left_out = ", ".join(f"{reason} {count}" for reason, count in made.left_out.items())
    counts = (counted(made.articles, "article"), counted(made.links, "link"), counted(made.pictures, "picture"))
    lines = [
        f"{', '.join(counts)}: {made.path}",
        *([f"left out: {left_out}"] if left_out else []),
        f"build it: {join(['multilink', *arguments])}",
    ]
    yield lines, asdict(made) | {"build": arguments}


def compare_command(lake: options.LakePath, store: options.Store = "") -> options.Summaries:
    """Show which of two models editors preferred in blind comparisons; you may look after each article."""
    from newsroom.decisions.comparison import comparisons
    from newsroom.decisions.store import open_store

    with open_store(lake, store) as log:
        found = comparisons(log)
    lines = [line for each in found for line in each.lines()]
    yield lines or ["no choice was made in a blind comparison"], {"comparisons": found}
