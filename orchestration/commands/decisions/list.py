from collections import Counter
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.console import aligned

SHOWN_NOTE = 40


def command(
    lake: options.LakePath,
    store: options.Store = "",
    article: Annotated[str, typer.Option(help="Digest of an article, or its first digits: only its decisions.")] = "",
) -> options.Summaries:
    """List decisions in the order they were made; those of blind comparisons do not name the model of the picture."""
    from newsroom.decisions.log import opened_log

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
    totals = ", ".join(f"{action} {count}" for action, count in counts.most_common()) or "no decision"
    lines = [*(aligned([head, *rows]) if rows else []), totals]
    yield lines, {"decisions": found}
