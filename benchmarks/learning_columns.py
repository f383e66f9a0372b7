"""The feature columns of the data sets of `benchmarks/learning.py`."""

VECTORS, REGIONS, CLASSES, SENTENCES = "efficientnet-lite0", "grid", "efficientnet-lite0-classes", "use-multilingual"
MIDDLE = f"{VECTORS}-middle"
VIEWS = (f"{VECTORS}-mirrored", MIDDLE, "colour-shape")  # beside the vectors
NAMED = f"{VECTORS}-names"
SECOND_SENTENCES = "all-minilm-l6-v2"
COLUMNS = (
    f"features.images={','.join((VECTORS, REGIONS, CLASSES, *VIEWS, NAMED))}",
    f"features.sentences={SENTENCES},{SECOND_SENTENCES}",
)
