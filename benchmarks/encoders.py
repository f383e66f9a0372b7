"""What the transformer tower saves on padding: ours over packed sentences against torch's over padded ones.

Forward and backward of 182 sentences of 6 to 30 words (a batch of 11 documents), d = 1024, 3 layers, 8 heads. The peer
is `torch.nn.TransformerEncoder` over rows padded to the longest, with a padding mask. Times are of the processor, so
that a busy machine does not blur the ratio. Run `python -m benchmarks.encoders [--threads 1] [--repeats 2] [--json]`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, TextInput
from training.towers.text.transformer import TransformerSettings, TransformerTower

SENTENCES, WORDS, DIMENSIONS, WORD_DIMENSIONS = 182, (6, 30), 1024, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON in the last line")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    vocabulary = Vocabulary(("<pad>", "<unk>", *(f"w{i}" for i in range(5000))))
    rng = np.random.default_rng(0)
    lengths = rng.integers(*WORDS, size=SENTENCES, endpoint=True)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 5000, size=length)) for length in lengths]
    config = TransformerSettings(word_dimensions=WORD_DIMENSIONS, dropout=0.0)
    tower = TransformerTower(config, Sizes(dimensions=DIMENSIONS), vocabulary)
    rows = tower.prepare(TextInput(texts=texts))
    peer = _peer()
    words = torch.zeros((SENTENCES, int(lengths.max())), dtype=torch.int64)
    for row, length in enumerate(lengths):
        words[row, :length] = torch.from_numpy(rows.words[rows.sentences.rows(row)].astype(np.int64))
    is_padding = torch.arange(words.shape[1])[None] >= torch.from_numpy(lengths)[:, None]

    def padded() -> Tensor:
        places = tower.position.weight[: words.shape[1]]
        embedded = tower.project(tower.norm(tower.embedding(words) + places))
        encoded = peer(embedded, src_key_padding_mask=is_padding)
        kept = (~is_padding).float()[..., None]
        return F.normalize((encoded * kept).sum(dim=1) / kept.sum(dim=1), dim=1)

    ours = _seconds(lambda: tower(rows), options.repeats)
    theirs = _seconds(padded, options.repeats)
    print(f"tokens {int(lengths.sum())}, padded {words.numel()} ({words.numel() / lengths.sum():.2f} times)")
    print(f"padded nn.TransformerEncoder {theirs:.2f} s, packed {ours:.2f} s: {theirs / ours:.2f} times as fast")
    if options.json:
        print(json.dumps({"padded s": theirs, "packed s": ours, "times as fast": theirs / ours}))


def _peer() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(DIMENSIONS, 8, 2048, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


def _seconds(encode: Callable[[], Tensor], repeats: int) -> float:
    """Return processor seconds of one forward and backward pass: the least of several."""
    found = []
    for _ in range(repeats):
        started = time.process_time()
        (encode() * torch.arange(DIMENSIONS)).sum().backward()
        found.append(time.process_time() - started)
    return min(found)


if __name__ == "__main__":
    main()
