from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands import options
from schemas.console import aligned
from schemas.documents import UNDETERMINED
from schemas.errors import UsageError

if TYPE_CHECKING:
    from training.retrieval.search import SearchResult

SHOWN_TEXT = 60  # characters of a picture's title or caption in the table


def command(
    index_path: options.IndexPath,
    headline: Annotated[str, typer.Option(help="Headline of the article.")] = "",
    lead: Annotated[str, typer.Option(help="Its lead.")] = "",
    caption: Annotated[str, typer.Option(help="What the picture is to show.")] = "",
    body: Annotated[str, typer.Option(help="Its text.")] = "",
    language: Annotated[str, typer.Option(help="Of the texts, such as de.")] = UNDETERMINED,
    image: Annotated[
        str | None, typer.Option(metavar="FILE", help="A picture whose likes are wanted, or its URL.")
    ] = None,
    like: Annotated[list[str] | None, typer.Option(metavar="HASH", help="More like this picture of the index.")] = None,
    unlike: Annotated[list[str] | None, typer.Option(metavar="HASH", help="Less like this one.")] = None,
    entity: Annotated[
        list[str] | None, typer.Option(help="Only pictures of whose metadata this name is a part; may be given again.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD OP VALUE", help="Only pictures like date>=2019-05, credit=dpa, place~Berlin."),
    ] = None,
    top: Annotated[int, typer.Option(help="How many pictures.")] = 20,
    rank_by: Annotated[str, typer.Option(help="visual, lexical or fused.")] = "visual",
    refine_below: Annotated[
        float | None, typer.Option(metavar="T", help="Of models of relations: refine similarities, as for link.")
    ] = None,
    refine_weight: Annotated[float, typer.Option(metavar="LAMBDA", help="Of that refinement.")] = 0.0,
    trec: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the ranking as a TREC run, too, of a query named 1.")
    ] = None,
    settings: options.ReadingSettings = None,
) -> options.Summaries:
    """Rank the pictures of an index for a text, a picture, or both.

    Shown are the cosine, the probability by the model's calibration, the weight of each text where the model fuses
    several, and the relations to expect where it predicts any. Filters act before ranking.
    """
    from orchestration.commands.link import refinement
    from orchestration.inference.archive import Archive
    from training.retrieval.search import RankBy

    if rank_by not in list(RankBy):
        raise UsageError(f"--rank-by {rank_by}: expected one of {', '.join(RankBy)}")
    with Archive(index_path, settings or []) as archive:
        found = archive.search(
            headline=headline,
            lead=lead,
            caption=caption,
            body=body,
            language=language,
            image=image,
            like=like or (),
            unlike=unlike or (),
            where=where or (),
            entities=entity or (),
            top=top,
            rank_by=RankBy(rank_by),
            refine=refinement(refine_below, refine_weight),
        )
    if trec is not None:
        rows = ((each.picture.image, each.rank, each.score) for each in found.images)
        lines = (f"1 Q0 {key} {rank} {score:.6f} {options.TREC_TAG}\n" for key, rank, score in rows)
        trec.write_text("".join(lines), encoding="utf-8")
    yield _search_lines(found), found.to_json()


def _search_lines(found: SearchResult) -> list[str]:
    """Return a ranking as a table, and what the model read and expects."""
    head = ("rank", "cosine", "probability", "words", "date", "image", "shown")
    rows = [
        (
            str(each.rank),
            f"{each.similarity:.3f}",
            "" if each.probability is None else f"{each.probability:.2f}",
            str(each.lexical_rank or ""),
            each.picture.metadata.date or "",
            each.picture.image[:16],
            (each.picture.metadata.title or each.picture.metadata.caption or each.picture.source or "")[:SHOWN_TEXT],
        )
        for each in found.images
    ]
    weights = [f"{source.role} {source.weight:.2f}" for source in found.sources if source.weight is not None]
    expected = [f"{name} {probability:.2f}" for name, probability in found.expected]
    return [
        f"{len(found.images)} of {found.searched} images",
        *(aligned([head, *rows]) if rows else []),
        *([f"weights: {', '.join(weights)}"] if weights else []),
        *([f"expect: {', '.join(expected)}" + (", refined by them" if found.is_refined else "")] if expected else []),
    ]
