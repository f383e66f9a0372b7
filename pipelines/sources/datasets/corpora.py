"""Corpora of the web: a data set for each format, whose shards a module of `pipelines.sources.corpora` reads.

    mmc4 (JSON Lines)   obelics (Parquet)   interleaved (Parquet, tar)   webdataset (tar, Parquet)   hf (Parquet, Arrow)
    tables (CSV, TSV, Parquet, JSON)   web (WARC, WACZ)

Every shard is read by one worker, from front to back, so that as many workers as there are shards have work.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from pipelines.files import BrokenInputError
from pipelines.recipe import BuildConfig, without_limits
from pipelines.settings import HttpConfig
from pipelines.sources.corpora.compose import Reading
from pipelines.sources.corpora.interleaved import read_interleaved, read_mmc4, read_obelics
from pipelines.sources.corpora.web import read_web
from pipelines.sources.corpora.webdataset import read_webdataset
from pipelines.sources.datasets.corpora import read_hf
from pipelines.sources.records import CandidateDocument
from pipelines.sources.source import (
    IMAGES,
    Context,
    Input,
    Language,
    Outcomes,
    Source,
    image_root,
    input_path,
    shard_root,
)
from schemas.documents import UNDETERMINED
from schemas.failures import Failure

Format = Literal["mmc4", "obelics", "interleaved", "webdataset", "hf", "tables", "web"]
_READERS: Mapping[Format, Callable[[str, Reading], Iterator[CandidateDocument | Failure]]] = {
    "mmc4": read_mmc4,
    "obelics": read_obelics,
    "interleaved": read_interleaved,
    "webdataset": read_webdataset,
    "hf": read_hf,
    "tables": read_hf,
    "web": read_web,
}
_PUBLISHED: Mapping[Format, tuple[str, ...]] = {
    "mmc4": ("*.jsonl", "*.jsonl.zip"),
    "obelics": ("*.parquet",),
    "interleaved": ("*.parquet", "*.tar"),
    "webdataset": ("*.tar", "*.parquet"),
    "hf": ("!cache-*", "!indices.*", "*.arrow", "*.parquet"),  # those that `datasets` derived are none
    "tables": ("*.csv", "*.tsv", "*.parquet", "*.jsonl", "*.json"),
    "web": ("*.warc", "*.wacz", "*.arc"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSource(Source):
    """A corpus that another project published, or a crawl.

    Attributes:
        format: of its shards.
        documents: paths of the shards, of the folders they are in, at whatever depth, or of a folder with a pattern of
            their names (`crawl/*.warc.gz`).
        images: folder or archive of pictures that a shard names and does not hold, or the URL of a folder; empty: the
            folder that all shards are in, except that mmc4 then fetches them from their own URLs.
        language: of the documents, where they do not say theirs.
        sentence_model: name or path of an installed spaCy pipeline that splits running text (obelics, interleaved,
            web); empty: by rules.
        texts: of hf and tables: name of the column of texts; empty: the first of the usual ones.
        pictures: of hf and tables: name of the column of pictures; empty: likewise.
        keep_splits: of hf and tables: whether documents are of the split that their shard's name, or its folder's,
            tells.
        skip_repeats: of mmc4: whether a document is left out of which the corpus says that its page may be there twice.
    """

    format: Format = "mmc4"
    documents: tuple[str, ...] = input_path(())
    images: str = input_path("")
    language: Language = UNDETERMINED
    sentence_model: str = ""
    texts: str = ""
    pictures: str = ""
    keep_splits: bool = True
    skip_repeats: bool = False

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        is_one_kind = self.format in ("hf", "interleaved", "tables")  # whose rows may also name files of the other kind
        return Input("documents", "shards", _PUBLISHED[self.format], is_needed=True, is_one_kind=is_one_kind), IMAGES

    def shards(self) -> tuple[str, ...]:
        """Return the paths of the shards."""
        return self.documents

    def read(self) -> Outcomes:
        """Yield the documents of all shards in order, and a failure for each that cannot be used."""
        for shard in self.documents:
            yield from self.read_shard(shard)

    def read_shard(self, shard: str, context: Context | None = None) -> Outcomes:
        """Yield the documents of a shard in order, and a failure for each that cannot be used.

        A document without an id of its own has that of its place: the shard's path below the folder that all shards
        are in, a colon, and its line or row.

        Raises:
            NotFoundError: there is no such file.
        """
        reading = Reading(
            dataset=self.format,
            root=image_root(self),
            shards=shard_root(self.documents),
            has_images=bool(self.images),
            language=self.language,
            sentence_model=self.sentence_model,
            texts=self.texts,
            pictures=self.pictures,
            keep_splits=self.keep_splits,
            skip_repeats=self.skip_repeats,
            files=self.documents,
            http=HttpConfig() if context is None else context.http,
        )
        try:
            for outcome in _READERS[self.format](shard, reading):
                yield _filed(outcome, shard, reading)
        except BrokenInputError as problem:
            yield _filed(problem.failure(), shard, reading)


def _filed(outcome: CandidateDocument | Failure, shard: str, reading: Reading) -> CandidateDocument | Failure:
    """Return an outcome; a failure that is filed under the name of its file, under that file's place."""
    name = PurePosixPath(shard).name
    if isinstance(outcome, Failure) and outcome.record_id.partition(":")[0] == name:
        return replace(outcome, record_id=reading.place(shard) + outcome.record_id.removeprefix(name))
    return outcome


def mmc4() -> BuildConfig:
    """MMC4: documents of sentences and pictures with CLIP's assignment, kept as a baseline (Zhu et al. 2023)."""
    return _corpus("mmc4", language="en")


def obelics() -> BuildConfig:
    """OBELICS, and MINT-1T's HTML documents: running text with pictures in the order of the page."""
    return _corpus("obelics", language="en")


def interleaved() -> BuildConfig:
    """NeMo Curator's interleaved rows, and MINT-1T's tars of documents."""
    return _corpus("interleaved")


def webdataset() -> BuildConfig:
    """Pictures with their captions in WebDataset's tars, or as img2dataset writes them."""
    return _corpus("webdataset")


def hf() -> BuildConfig:
    """A data set of Hugging Face on disk, in Arrow or Parquet."""
    return _corpus("hf")


def tables() -> BuildConfig:
    """A table of addresses of pictures and their texts: CSV, TSV, Parquet or JSON."""
    return _corpus("tables")


def web() -> BuildConfig:
    """Pages in WARC files: main text and pictures in the order of the page."""
    return _corpus("web")


def _corpus(dataset: Format, **source: str) -> BuildConfig:
    """Return a build that keeps every document of a corpus; most of the links of an old one are dead."""
    config = without_limits(dataset, CorpusSource(format=dataset, **source))  # type: ignore[arg-type]
    return replace(config, max_failure_share=0.95)


RECIPES = {
    "mmc4": mmc4,
    "obelics": obelics,
    "interleaved": interleaved,
    "webdataset": webdataset,
    "hf": hf,
    "tables": tables,
    "web": web,
}
