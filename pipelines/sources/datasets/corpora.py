"""Corpora of the web: one reader of shards, the package `pipelines.sources.corpora`, and a data set for each format."""

from dataclasses import replace

from pipelines.recipe import BuildConfig, without_limits
from pipelines.sources.corpora.source import CorpusSource, Format


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
