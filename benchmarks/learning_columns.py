"""The feature columns of the data sets of `benchmarks/learning.py`."""

VECTORS, REGIONS, CLASSES, SENTENCES = "efficientnet-lite0", "grid", "efficientnet-lite0-classes", "use-multilingual"
VIEWS = (f"{VECTORS}-mirrored", f"{VECTORS}-middle", "colour-shape")  # beside the vectors
NAMED = f"{VECTORS}-names"
COLUMNS = f"features.images={','.join((VECTORS, REGIONS, CLASSES, *VIEWS, NAMED))}"
