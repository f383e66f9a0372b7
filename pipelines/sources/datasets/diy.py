"""The data set `diy`: Reddit's posts with their imgur albums; its source is the package `pipelines.sources.diy`."""

from pipelines.recipe import BuildConfig
from pipelines.settings import DocumentsConfig
from pipelines.sources.diy.submissions import DiySource


def diy() -> BuildConfig:
    """Reddit DIY posts with their imgur albums, by the rules of Hessel 2019 (SPEC 2)."""
    return BuildConfig(dataset="diy", source=DiySource(), documents=DocumentsConfig(is_judged_after_dedupe=True))


RECIPES = {"diy": diy}
