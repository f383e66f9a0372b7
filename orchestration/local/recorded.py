"""The definitions of a workspace that has a recorded web, in its folder `web`: its builds scrape that.

`multilink up` lets Dagster load these in place of `orchestration.dagster.definitions` where there is such a folder.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from orchestration.config import SETTINGS_VARIABLE, DatasetSettings, load_settings
from orchestration.dagster.definitions import make_definitions
from orchestration.demo.recorded_web import scraping
from orchestration.local.up import WEB
from orchestration.steps import Steps, Summary
from schemas.console import Say


class RecordedSteps(Steps):
    """The steps of a workspace; `make posts` adds posts to what its next build scrapes."""

    def build(self, dataset: DatasetSettings, addresses: Sequence[str] = (), *, say: Say) -> Summary:
        """Build from the recorded web, which is served meanwhile."""
        with scraping(Path(os.environ[SETTINGS_VARIABLE]).parent / WEB) as recorded:
            return super().build(dataset, (*recorded, *addresses), say=say)


_settings = load_settings(os.environ)
definitions = make_definitions(_settings, RecordedSteps(settings=_settings))
