from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands import options
from schemas.console import aligned

if TYPE_CHECKING:
    from orchestration.decisions.log import DecisionLog

SHOWN_NOTE = 40


def command(
    lake: options.LakePath,
    store: options.Store = "",
    article: Annotated[str, typer.Option(help="Digest of an article, or its first digits: its decisions alone.")] = "",
) -> options.Summaries:
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
    said = ", ".join(f"{action} {count}" for action, count in counts.most_common()) or "no decision"
    lines = [*(aligned([head, *rows]) if rows else []), said]
    yield lines, {"decisions": [asdict(each) for each in found]}


def opened_log(lake: str, store: str) -> DecisionLog:
    """Return the log of the pages of a lake.

    Raises:
        NotFoundError: the pages have not been started yet.
    """
    from orchestration.decisions.database import database_in, open_database
    from orchestration.decisions.log import DecisionLog

    return DecisionLog(open_database(store or database_in(lake), must_exist=True))
