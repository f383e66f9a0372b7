"""The extractor `grid`: a short name for the grid of the packaged network."""

from pipelines.features.extractors import efficientnet_lite0

ENTRIES = {"grid": efficientnet_lite0.ENTRIES["efficientnet-lite0-grid"]}
