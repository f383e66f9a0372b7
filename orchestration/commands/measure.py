from typing import Annotated

import typer

from orchestration.commands import options


def command(
    model: Annotated[str, typer.Argument(help="Model whose links are measured: its name, NAME-VERSION or address.")],
    dataset: options.Dataset,
    lake: options.LakePath,
    precision: Annotated[
        float | None, typer.Option(min=0, max=1, help="Find the threshold whose links have at least this precision.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample that was labelled.")] = 0,
    store: options.Store = "",
) -> options.Summaries:
    """State precision and recall of all links of a version, by the labels of a random sample (`multilink label`)."""
    from orchestration.decisions.log import opened_log
    from orchestration.pages.label_sample import links_by, measured
    from orchestration.pages.linked import link_sets
    from schemas.lake import Lake
    from schemas.manifest import read_manifest

    manifest, folder = read_manifest(Lake.at(lake), dataset)
    links = links_by(link_sets(Lake.at(lake), manifest), model)
    with opened_log(lake, store) as log:
        report = measured(links, manifest, folder, log, seed=seed, wanted=precision)
    yield report.lines(), report.to_json()
