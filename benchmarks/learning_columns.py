"""The feature columns of the data sets of `benchmarks/learning.py`."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "export_sentences.py"
VECTORS, REGIONS, CLASSES, SENTENCES = "efficientnet-lite0", "grid", "efficientnet-lite0-classes", "use-multilingual"
MIDDLE = f"{VECTORS}-middle"
VIEWS = (f"{VECTORS}-mirrored", MIDDLE, "colour-shape")  # beside the vectors
NAMED = f"{VECTORS}-names"
SECOND_SENTENCES = "all-minilm-l6-v2"


def columns(folder: Path) -> tuple[str, ...]:
    """Return the settings of a build that has them all; the second encoder of sentences is exported into a folder."""
    network = folder / f"{SECOND_SENTENCES}.onnx"
    if not network.exists():
        subprocess.run([sys.executable, str(EXAMPLE), SECOND_SENTENCES, "--out", str(folder)], check=True)
    return (
        f"features.weights={SECOND_SENTENCES}={network}",
        f"features.images={','.join((VECTORS, REGIONS, CLASSES, *VIEWS, NAMED))}",
        f"features.sentences={SENTENCES},{SECOND_SENTENCES}",
    )
