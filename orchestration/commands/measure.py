from dataclasses import asdict
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.lake import Lake
from schemas.manifest import read_manifest


def command(
    model: Annotated[str, typer.Argument(help="Model whose links are measured: its name, NAME-VERSION or address.")],
    dataset: options.Dataset,
    lake: options.LakePath,
    precision: Annotated[
        float | None, typer.Option(min=0, max=1, help="Find the threshold whose links have at least this precision.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample that was labelled.")] = 0,
    name: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Write the labelled images as this data set, too.")
    ] = "",
    store: options.Store = "",
    *,
    say: options.Progress,
) -> options.Summaries:
    """State precision and recall of all links of a version, by the labels of a random sample (`multilink label`).

    As a data set, the labelled images have what people said as their links: for the gate, for evaluate, and to
    calibrate by.
    """
    from newsroom.decisions.log import opened_log
    from newsroom.labels.label_sample import labels_of, links_by, measured
    from newsroom.labels.linked import link_sets
    from pipelines.exports.subset import write_labelled

    home = Lake.at(lake)
    manifest, folder = read_manifest(home, dataset)
    links = links_by(link_sets(home, manifest), model)
    with opened_log(lake, store) as log:
        report = measured(links, manifest, folder, log, seed=seed, wanted=precision)
        labels = labels_of(links, manifest, folder, log, seed=seed) if name else {}
    if not name:
        yield report.lines(), report
        return
    written = write_labelled(home, manifest, folder, labels, name, say=say)
    counts = ", ".join(f"{split} {each.documents}" for split, each in written.splits.items())
    yield [*report.lines(), f"{written.reference}: {counts} documents"], asdict(report) | {"as": written.reference}
