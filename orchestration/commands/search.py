from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.commands import options
from schemas.documents import UNDETERMINED
from schemas.errors import UsageError


def command(
    index_path: options.IndexPath,
    headline: Annotated[str, typer.Option(help="Headline of the article.")] = "",
    lead: Annotated[str, typer.Option(help="Its lead.")] = "",
    caption: Annotated[str, typer.Option(help="What the picture should show.")] = "",
    body: Annotated[str, typer.Option(help="Its text.")] = "",
    language: Annotated[str, typer.Option(help="Of the texts, such as de.")] = UNDETERMINED,
    image: Annotated[
        str | None, typer.Option(metavar="FILE", help="Picture, or its URL, to find similar ones to.")
    ] = None,
    like: Annotated[list[str] | None, typer.Option(metavar="HASH", help="More like this picture of the index.")] = None,
    unlike: Annotated[list[str] | None, typer.Option(metavar="HASH", help="Less like this one.")] = None,
    entity: Annotated[
        list[str] | None, typer.Option(help="Only pictures whose metadata contain this name; may be repeated.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD OP VALUE",
            help="Only pictures that meet this, such as date>=2019-05, credit=dpa, place~Berlin.",
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of pictures.")] = 20,
    rank_by: Annotated[
        str | None,
        typer.Option(help="visual, lexical or fused; else what finds validation texts' pictures best in this index."),
    ] = None,
    refine: options.Refine = options.refinement,
    trec: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the ranking to this file, too, as a TREC run of a query named 1."),
    ] = None,
    settings: options.ReadingSettings = None,
) -> options.Summaries:
    """Rank the pictures of an index for a text, a picture, or both.

    The table has the cosine and, of a text by similarity alone, the probability by validation texts that were searched
    for in this index. Below it are the weights of the texts, if the model fuses several, and the relations to expect,
    if it predicts any. Filters act before ranking.
    """
    from newsroom.search.archive import Archive
    from newsroom.search.search import RankBy
    from training.linking.options import LinkOptions

    if rank_by is not None and rank_by not in list(RankBy):
        raise UsageError(f"--rank-by {rank_by}: expected one of {', '.join(RankBy)}")
    with Archive(index_path, settings or []) as archive:
        found = archive.search(
            headline=headline, lead=lead, caption=caption, body=body, language=language,
            image=image, like=like or (), unlike=unlike or (), where=where or (), entities=entity or (),
            top=top, rank_by=None if rank_by is None else RankBy(rank_by),
            options=LinkOptions(refine=refine()),
        )  # fmt: skip
    if trec is not None:
        trec.write_text("".join(_trec_lines(found)), encoding="utf-8")
    yield found.lines(), asdict(found)


def _trec_lines(found: Any) -> Iterator[str]:
    from orchestration.workflows.search_evaluation import TREC_TAG

    rows = ((each.picture.image, each.rank, each.score) for each in found.images)
    return (f"1 Q0 {key} {rank} {score:.6f} {TREC_TAG}\n" for key, rank, score in rows)
