"""What the tests of corpora share: a picture, and reading a corpus as a build does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from candidates import names, parted, uris_of
from corpus_files import flat

from pipelines.embedded import read_picture
from pipelines.settings import HttpConfig
from pipelines.sources.datasets.corpora import CorpusSource
from pipelines.sources.records import CandidateDocument
from pipelines.sources.source import find_inputs, image_root


class Read:
    """The outcomes of a corpus: its documents, its failures as `<id> <reason>`, and the pictures of a document."""

    def __init__(self, path: Path, form: Any, *, http: HttpConfig | None = None, **settings: Any) -> None:
        source = find_inputs(CorpusSource(format=form, documents=(str(path),), **settings), Path)
        context: Any = SimpleNamespace(http=http or HttpConfig())
        self.root = image_root(source)
        self.drafts, failures = parted(
            found for shard in source.shards() for found in source.read_shard(shard, context)
        )
        self.failures = names(failures)

    def pictures(self, draft: CandidateDocument) -> list[bytes]:
        return [read_picture(self.root, uri, max_bytes=10**6) for uri in uris_of(draft)]

    @property
    def texts(self) -> list[list[str]]:
        return [[sentence.text for sentence in draft.sentences] for draft in self.drafts]


@pytest.fixture
def read() -> type[Read]:
    return Read


@pytest.fixture
def picture() -> Callable[..., bytes]:
    return flat
