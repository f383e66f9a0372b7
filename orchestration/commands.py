"""The commands that do one thing each, of both halves and across them: what a step of `steps.py` is one of.

`cli.py` adds those that take several steps.
"""

import typer

import pipelines.cli
import training.cli
from orchestration.decisions.commands import decisions_app
from orchestration.link import link
from orchestration.pages.command import pages
from orchestration.sample import sample
from orchestration.search import evaluate_search, index, search
from orchestration.settings import settings

app = typer.Typer(
    name="multilink",
    help="Learn which sentence of a document goes with which image, with no link ever shown in training.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
pipelines.cli.register(app)
pipelines.cli.datasets_app.command()(sample)
training.cli.register(app)
app.command()(settings)
app.command()(link)
app.command()(index)
app.command()(search)
app.command()(evaluate_search)
app.command()(pages)
app.add_typer(decisions_app, name="decisions")
