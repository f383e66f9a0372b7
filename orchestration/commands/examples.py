from typing import Annotated

import typer

from orchestration.commands import options
from schemas.console import Console


def command(
    model: Annotated[str, typer.Option(help="models:/NAME/VERSION, models:/NAME@ALIAS, runs:/RUN/model or a folder.")],
    dataset: options.Dataset,
    lake: options.LakePath,
    split: options.Split = "test",
    count: Annotated[int, typer.Option(help="Documents that are shown.")] = 6,
    report: options.Report = None,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Show what a model links in the documents whose images and sentences differ most; links need not be known.

    Beside it stands the loss of the model's objective on the split: what there is to judge by without links.
    """
    dataset = options.known_dataset(lake, dataset)
    from training.report.pages import examples_page, write_page
    from training.workflows.examples import run_examples

    found = run_examples(
        model=model, dataset=dataset, lake=lake, split=split, count=count, tracking=tracking, say=Console().say
    )
    page = None
    if report is not None:
        shown, about = [each.shown for each in found.documents], {"dataset": found.dataset, "split": found.split}
        page = write_page(report, examples_page(shown, model=found.model, loss=found.loss, **about))
    yield options.with_report(found.lines(), found.to_json(), page)
