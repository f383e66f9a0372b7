from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from orchestration.commands import options


def command(
    model: Annotated[str, typer.Argument(help="Model whose links are measured: its name, NAME-VERSION or address.")],
    dataset: options.Dataset,
    lake: options.LakePath,
    count: Annotated[int, typer.Option(min=1, max=5000, help="Number of pictures to label.")] = 50,
    by: Annotated[str, typer.Option(metavar="WHO", help="Name of the person who labels.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the sample; everybody who has the same labels the same.")] = 0,
    port: options.PagesPort = options.PAGES_PORT,
    store: options.Store = "",
) -> options.Summaries:
    """Label a random sample of a version's pictures: which sentence goes with each? By keyboard, without any score.

    Prints the address of the page and serves until Ctrl-C. `multilink measure` says what the answers tell.
    """
    from newsroom.decisions.database import database_in
    from newsroom.labels.label_sample import links_by
    from newsroom.labels.linked import link_sets, outcomes
    from newsroom.pages.serving import run_pages
    from newsroom.pages.settings import PagesSettings
    from schemas.lake import Lake
    from schemas.manifest import read_manifest

    manifest, _ = read_manifest(Lake.at(lake), dataset)
    links = links_by(link_sets(Lake.at(lake), manifest), model)
    outcomes(links)
    path = f"/labels/{quote(manifest.dataset)}/{quote(manifest.version)}/{quote(links.name)}"
    query = urlencode({"count": count, "seed": seed} | ({"by": by} if by else {}))
    for _, values in run_pages(PagesSettings(lake=lake, store=store or database_in(lake), port=port)):
        page = f"{values['address']}{path}?{query}"
        yield [f"{page}, until Ctrl-C"], {"address": values["address"], "page": page}
