"""The definitions of a workspace that has a recorded web, in its folder `web`: its builds scrape that.

`multilink up` lets Dagster load these in place of `orchestration.dagster.definitions` where there is such a folder.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from orchestration.config import SETTINGS_VARIABLE, load_settings
from orchestration.dagster.definitions import make_definitions
from orchestration.dagster.pipes import StepPipes
from orchestration.demo.recorded_web import scraping
from orchestration.local.up import WEB
from orchestration.steps import Step, build


@contextmanager
def recorded(step: Step) -> Iterator[Step]:
    """Serve the recorded web while a build lasts, and let it scrape that; `make posts` adds posts to the next one's."""
    if step.func is not build:
        yield step
        return
    with scraping(Path(os.environ[SETTINGS_VARIABLE]).parent / WEB) as addresses:
        yield partial(step, settings=(*addresses, *step.keywords["settings"]))


_settings = load_settings(os.environ)
definitions = make_definitions(_settings, StepPipes(_settings.ray, recorded))
