"""Self-attention of Liu 2020 (eq. 2): over the words of a sentence, and over the sources of a document."""

from torch import Tensor, nn

from training.towers.packing import Packing, attend


class SelfAttention(nn.Module):
    """Multi-head self-attention of Liu 2020 (eq. 2 and below): heads of given sizes, no bias.

    Args:
        features: w, size of a token.
        heads: h.
        head_dimensions: d_k, size of a query and a key.
        value_dimensions: d_v, size of a value; None: d_k.
        has_output: whether the heads go through W^O, back to `features`.
    """

    def __init__(
        self,
        features: int,
        *,
        heads: int,
        head_dimensions: int,
        value_dimensions: int | None = None,
        has_output: bool = True,
    ) -> None:
        super().__init__()
        self.heads = heads
        values = heads * (value_dimensions or head_dimensions)
        self.query = nn.Linear(features, heads * head_dimensions, bias=False)
        self.key = nn.Linear(features, heads * head_dimensions, bias=False)
        self.value = nn.Linear(features, values, bias=False)
        self.output = nn.Linear(values, features, bias=False) if has_output else None

    def forward(self, x_TE: Tensor, packing: Packing) -> Tensor:
        mixed = attend(self.query(x_TE), self.key(x_TE), self.value(x_TE), packing, heads=self.heads)
        return mixed if self.output is None else self.output(mixed)
