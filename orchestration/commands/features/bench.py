import time
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.console import left_of
from schemas.overrides import override


def command(
    names: Annotated[list[str] | None, typer.Argument(help="Extractors; those of the settings by default.")] = None,
    images: Annotated[int, typer.Option(help="Number of generated pictures or sentences to measure with.")] = 32,
    settings: options.Settings = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Measure extractors on this machine: images or sentences a second, and what each value takes in a data set.

    `--set features.weights=NAME=FILE` names the weights of an extractor that needs some.
    """
    from pipelines.config import recipe
    from pipelines.features.catalogue import measured, measurements

    config = override(recipe("documents"), settings or [])
    rows = []
    chosen, began = names or (*config.features.images, *config.features.sentences), time.monotonic()
    for done, name in enumerate(chosen):
        left = left_of(done, len(chosen), time.monotonic() - began)
        say(f"measuring {name}, {done + 1} of {len(chosen)}, with {images} items{left}")
        rows.append(measured(name, config.features, config.http, count=images))
    yield measurements(rows), {row["name"]: row for row in rows}
