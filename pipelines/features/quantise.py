"""A network's graph in 8-bit integers: half the time on processors that multiply them, for values that differ a little.

The convolutions and what stands between them are quantised; the means over cells and the classifier stay in float32.
Weights have a scale for each channel. Activations have one for each tensor, from their least and largest values for
drawn pictures (DECISIONS: photographs gave no better values). On a processor without an instruction for such products
(AVX-512 VNNI, AVX-VNNI) sums of two products may be cut off: its values are others, as its fingerprint is.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.features.catalogue import made_up_pictures
from pipelines.features.pixels import Preprocessing, Square

PICTURES = 32
_QUANTISED = ["Conv", "Clip", "Add"]


def quantised(graph: bytes, preprocessing: Preprocessing) -> bytes:
    """Return a graph that `convert` made, in 8-bit integers; on one kind of processor always in the same bytes."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_static
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    model = onnx.load_from_string(graph)
    classes = [*model.metadata_props]
    add_pre_process_metadata(model)  # says that batch normalisation is folded; else a warning is printed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quantised.onnx")
        quantize_static(
            model,
            path,
            _Drawn(preprocessing),
            op_types_to_quantize=_QUANTISED,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        found = onnx.load(path)
    del found.metadata_props[:]
    found.metadata_props.extend(classes)
    return bytes(found.SerializeToString(deterministic=True))


class _Drawn:
    """Drawn pictures, one at a time, as ONNX Runtime's quantisation reads them."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        squares = [preprocessing.square(picture) for picture in made_up_pictures(PICTURES)]
        pixels = [square.pixels[None] for square in squares if isinstance(square, Square)]
        none = np.arange(0)
        self.rest = iter(
            [{"values": preprocessing.values(each), "of_vectors": none, "of_cells": none} for each in pixels]
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self.rest, None)
