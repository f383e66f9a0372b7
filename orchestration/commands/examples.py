from typing import Annotated

import typer

from orchestration.commands import options


def command(
    model: Annotated[str, typer.Option(help="models:/NAME/VERSION, models:/NAME@ALIAS, runs:/RUN/model or a folder.")],
    dataset: options.Dataset,
    lake: options.LakePath,
    split: options.Split = "test",
    count: Annotated[int, typer.Option(help="Documents that are shown.")] = 6,
    report: options.Report = None,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Show what a model links in the documents whose images and sentences differ most; links need not be known.

    Beside it stands the loss of the model's objective on the split: what there is to judge by without links.
    """
    dataset = options.known_dataset(lake, dataset)
    from training.report.pages import write_page
    from training.workflows.examples import run_examples

    found = run_examples(model=model, dataset=dataset, lake=lake, split=split, count=count, tracking=tracking, say=say)
    yield options.with_report(found.lines(), found.to_json(), report, lambda folder: write_page(folder, found.page()))
