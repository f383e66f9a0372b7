"""`multilink decisions`: the log, the data set made of it, and which of two models editors preferred."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from schemas.console import Console, aligned
from schemas.documents import Split
from schemas.lake import Folder, Lake
from training import options

if TYPE_CHECKING:
    from orchestration.decisions.comparison import Comparison
    from orchestration.decisions.export import Exported
    from orchestration.decisions.log import DecisionLog

Store = Annotated[
    str,
    typer.Option(
        envvar="MULTILINK_PAGES_STORE",
        metavar="URL",
        help="Database of the pages, such as postgresql://USER@HOST/NAME; in a local lake by default.",
    ),
]
SHOWN_NOTE = 40
VERDICTS = {
    "open": "no difference is shown yet",
    "champion": "the champion is preferred",
    "challenger": "the challenger is preferred",
}
decisions_app = typer.Typer(help="Look at what editors decided, and use it.", no_args_is_help=True)


def opened_log(lake: str, store: str) -> DecisionLog:
    """Return the log of the pages of a lake.

    Raises:
        NotFoundError: the pages have not been started yet.
    """
    from orchestration.database import database_in, open_database
    from orchestration.decisions.log import DecisionLog

    return DecisionLog(open_database(store or database_in(lake), must_exist=True))


@decisions_app.command("list")
def list_decisions(
    lake: options.LakePath,
    store: Store = "",
    article: Annotated[str, typer.Option(help="Digest of an article, or its first digits: its decisions alone.")] = "",
    is_json: options.Json = False,
) -> None:
    """List decisions in the order they were made; of a blind comparison without the model that gave the picture."""
    with opened_log(lake, store) as log:
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
    total = ", ".join(f"{action} {count}" for action, count in counts.most_common()) or "no decision"
    lines = [*(aligned([head, *rows]) if rows else []), total]
    Console(is_json=is_json).summarise(lines, {"decisions": [asdict(each) for each in found]})


@decisions_app.command("export")
def export_decisions(
    lake: options.LakePath,
    output: Annotated[str, typer.Option(metavar="DIR", help="Folder for documents.jsonl and the pictures.")],
    store: Store = "",
    split: Annotated[
        str | None, typer.Option(help="Put all documents into train, val or test; by default the build divides them.")
    ] = None,
    as_pairs: Annotated[
        bool,
        typer.Option("--pairs", help="A document for each chosen picture, without others: for objectives of pairs."),
    ] = False,
    is_json: options.Json = False,
) -> None:
    """Write decisions as documents with links, which `multilink build documents` reads.

    Chosen pictures are linked to every text of their article; pictures rejected as not fitting stand beside them
    without a link; corrected links replace those of their document.
    """
    from orchestration.decisions.export import export

    chosen = None if split is None else Split(options.known_split(split))
    with opened_log(lake, store) as log:
        made = export(log, Lake.at(lake), Folder(output), split=chosen, as_pairs=as_pairs)
    Console(is_json=is_json).summarise(_export_lines(made, lake), asdict(made) | {"build": build_arguments(made, lake)})


def build_arguments(made: Exported, lake: str) -> list[str]:
    """Return the arguments of `multilink` that build the data set of an export, with what models of it read."""
    from orchestration.decisions.export import DATASET

    features = ",".join(f'"{name}"' for name in made.features)
    settings = [
        f"dataset={DATASET}",
        f"source.documents={made.path}",
        *([f"features.images=[{features}]"] * bool(features)),
    ]
    return ["build", "documents", "--lake", lake, *(part for each in settings for part in ("--set", each))]


def _export_lines(made: Exported, lake: str) -> list[str]:
    from shlex import join

    left_out = ", ".join(f"{reason} {count}" for reason, count in made.left_out.items())
    return [
        f"{made.articles} articles, {made.documents} corrected documents, {made.links} links, "
        f"{made.pictures} pictures: {made.path}",
        *([f"left out: {left_out}"] if left_out else []),
        f"build it: {join(['multilink', *build_arguments(made, lake)])}",
    ]


@decisions_app.command("compare")
def compare_models(lake: options.LakePath, store: Store = "", is_json: options.Json = False) -> None:
    """Show which model editors preferred where two were compared blind: articles won, with a 95% interval."""
    from orchestration.decisions.comparison import comparisons

    with opened_log(lake, store) as log:
        found = comparisons(log)
    lines = [line for each in found for line in comparison_lines(each)]
    Console(is_json=is_json).summarise(
        lines or ["no choice was made in a blind comparison"],
        {"comparisons": [asdict(each) | {"outcome": each.outcome} for each in found]},
    )


def comparison_lines(found: Comparison) -> list[str]:
    """Return the result of a comparison in words."""
    result = found.result
    share = "" if result.share is None else f", {result.share:.0%} of those won"
    return [
        f"{found.champion} (champion) and {found.challenger} (challenger) on {found.dataset}",
        f"  articles: champion {result.first}, challenger {result.second}, even {result.ties}",
        f"  challenger{share}, 95% interval {result.low:.0%} to {result.high:.0%}, sign test p = {result.p_value:.3f}",
        f"  {VERDICTS[found.outcome]}",
    ]
