"""The sources stage in Beam: any source gives candidate documents and failure rows.

A source that fetches has a transform of its own; files are read where one worker has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from pipelines.progress import Progress
from pipelines.settings import HttpConfig
from pipelines.sources.credentials import Credentials
from pipelines.sources.diy.settings import DiySource
from pipelines.sources.diy.transforms import ReadDiy
from pipelines.sources.readers import read_source
from pipelines.sources.takedowns import Takedowns
from pipelines.sources.wikipedia.imageclef import ImageclefSource
from pipelines.sources.wikipedia.live import WikipediaSource
from pipelines.sources.wikipedia.transforms import ReadImageclef, ReadWikipedia
from pipelines.transforms import Fallible, Outcome
from schemas.failures import Stage
from schemas.lake import Folder


@dataclass(eq=False)
class ReadSource(beam.PTransform):
    """Reads any source from the root of a pipeline: gives an `Outcome` of candidate documents.

    Attributes:
        source: settings of the source.
        min_images: an article with fewer is left out before it is parsed.
    """

    source: Any
    http: HttpConfig
    raw: Folder
    credentials: Credentials
    takedowns: Takedowns
    min_images: int
    progress: Progress

    def expand(self, root: beam.Pipeline) -> Outcome:
        source, http, raw = self.source, self.http, self.raw
        outcome: Outcome
        if isinstance(source, DiySource):
            outcome = root | "diy" >> ReadDiy(source, http, raw, self.credentials, self.takedowns, self.progress)
        elif isinstance(source, WikipediaSource):
            outcome = root | "wikipedia" >> ReadWikipedia(source, http, raw, self.min_images, self.progress)
        elif isinstance(source, ImageclefSource):
            outcome = root | "imageclef" >> ReadImageclef(source, self.min_images)
        else:
            outcome = root | "start" >> beam.Create([source]) | "files" >> Fallible(Stage.SOURCES, read_source)
        return outcome
