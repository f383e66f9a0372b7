from typing import Annotated

import typer

from orchestration.commands import options


def command(
    model: Annotated[str, typer.Option(help=f"{options.ADDRESSES}.")],
    dataset: options.Dataset,
    lake: options.LakePath,
    split: options.Split = "test",
    count: Annotated[int, typer.Option(help="Number of documents.")] = 6,
    report: options.Report = None,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Show the links of a model in the documents whose images and sentences differ most; true links are not needed.

    The summary has the loss of the model's objective on the split, by which models can be judged without true links.
    """
    dataset = options.known_dataset(lake, dataset)
    from training.workflows.report import run_examples

    found = run_examples(model=model, dataset=dataset, lake=lake, split=split, count=count, tracking=tracking, say=say)
    yield options.with_report(found.lines(), found, report, found.page)
