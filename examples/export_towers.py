"""The two towers of a CLIP or SigLIP model become two networks of your own: columns of one joint model.

python examples/export_towers.py FOLDER clip
multilink build ... --set features.images=clip-images --set features.sentences=clip-texts \
    --set features.weights=clip-images=clip-images.onnx,clip-texts=clip-texts.onnx

FOLDER is what `save_pretrained` of the package `transformers` writes, with the processor. Beside each network is its
description, as docs/how-to/features.md says; the tokenizer is beside that of texts. Pictures are read from a build's
copies, whose shorter side has 256 pixels, and are resized bilinearly. It needs the extras
`pipelines` and `sentences`.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

LEVELS = 255.0


class Tower(nn.Module):
    """A method of a model that gives vectors, as a module."""

    def __init__(self, model: nn.Module, give: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.model, self.give = model, give

    def forward(self, given: Tensor) -> Tensor:
        found = self.give(given)
        vectors: Tensor = getattr(found, "pooler_output", found)  # before transformers 5: the vectors themselves
        return vectors


def export(tower: Tower, example: Tensor, path: Path, *, input_name: str, description: Mapping[str, Any]) -> None:
    """Write a tower's network, and its description beside it."""
    with warnings.catch_warnings(action="ignore"):  # of packages about one another
        torch.onnx.export(
            tower.eval().requires_grad_(False),
            (example,),
            path,
            input_names=[input_name],
            output_names=["vectors"],
            dynamic_shapes=[{0: torch.export.Dim("rows")}],
            external_data=False,
            verbose=False,
        )
    path.with_suffix(".json").write_text(json.dumps({"output": "vectors", "normalise": True, **description}, indent=1))


def pictures_of(processor: Any) -> dict[str, Any]:
    """Return how a model's processor makes a square of a picture, as a network's description says it.

    Raises:
        SystemExit: it does so in a way that a description cannot say.
    """
    shorter = processor.size.get("shortest_edge")
    size = processor.crop_size["height"] if shorter else processor.size["height"]
    if not shorter and processor.size["height"] != processor.size["width"]:
        raise SystemExit(f"expected squares, found a processor for {processor.size}")
    scales = {"mean": processor.image_mean, "deviation": processor.image_std}
    described: dict[str, Any] = {name: [value * LEVELS for value in values] for name, values in scales.items()}
    fit = {"fit": "centre", "shorter_side_px": shorter} if shorter else {"fit": "squash"}
    return {"kind": "vector", "size_px": size, **fit, **described}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what save_pretrained wrote")
    parser.add_argument("name", help="of the model: its columns are NAME-images and NAME-texts")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the files")
    options = parser.parse_args()
    model = AutoModel.from_pretrained(options.folder, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    pictures = pictures_of(AutoImageProcessor.from_pretrained(options.folder))
    images, texts = (options.out / f"{options.name}-{side}.onnx" for side in ("images", "texts"))
    export(
        Tower(model, model.get_image_features),
        torch.zeros(2, 3, pictures["size_px"], pictures["size_px"]),
        images,
        input_name="pixels",
        description=pictures,
    )
    tokens = model.config.text_config.max_position_embeddings
    vocabulary = f"{texts.stem}-tokenizer.json"
    tokenizer.backend_tokenizer.save(str(options.out / vocabulary))
    description = {"kind": "text", "tokenizer": vocabulary, "max_tokens": tokens, "pad_to_max": True}
    export(
        Tower(model, model.get_text_features),
        torch.ones(2, tokens, dtype=torch.long),
        texts,
        input_name="input_ids",
        description=description | {"pad_id": tokenizer.pad_token_id},
    )
    print(f"{images} and {texts}")


if __name__ == "__main__":
    main()
