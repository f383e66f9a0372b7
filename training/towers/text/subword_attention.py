"""Text tower of Liu 2020 (4.3): words with their n-grams, self-attention with residual, point-wise layers, max pool.

Neither position nor mask is used (4.3.2); the point-wise CNN is two affine maps token by token (4.3.3).
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from schemas.configs import PositiveInt
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, Tower, unit
from training.towers.packing import Packing, largest_of, pool
from training.towers.self_attention import SelfAttention
from training.towers.subwords import SubwordRows, SubwordsSettings, SubwordTower


@dataclass(frozen=True, slots=True, kw_only=True)
class SubwordAttentionSettings(SubwordsSettings):
    """N 4.3: words with their n-grams, self-attention, point-wise layers, max pool.

    Attributes:
        heads: attention heads (N: 6).
        head_dimensions: size of a head (N: 64).
        hidden_dimensions: width between the two point-wise layers (N: 2048).
        attention: whether there is attention (ablation N table 1).
    """

    name: str = "subword-attention"
    heads: PositiveInt = 6
    head_dimensions: PositiveInt = 64
    hidden_dimensions: PositiveInt = 2048
    attention: bool = True

    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        return SubwordAttentionTower(self, sizes, vocabulary)


class SubwordEncoder(nn.Module):
    """T x w packed word vectors -> N x d (not yet of unit length)."""

    def __init__(self, config: SubwordAttentionSettings, dimensions: int) -> None:
        super().__init__()
        size = config.word_dimensions
        self.dropout = nn.Dropout(config.dropout)
        self.attention = None
        if config.attention:
            self.attention = SelfAttention(size, heads=config.heads, head_dimensions=config.head_dimensions)
        self.widen = nn.Linear(size, config.hidden_dimensions)
        self.narrow = nn.Linear(config.hidden_dimensions, dimensions)

    def forward(self, x_TE: Tensor, packing: Packing) -> Tensor:
        x_TE = self.dropout(x_TE)
        if self.attention is not None:
            x_TE = self.attention(x_TE, packing) + x_TE
        return pool(self.narrow(F.relu(self.widen(x_TE))), packing, largest_of)


class SubwordAttentionTower(SubwordTower):
    """N sentences -> N x d unit vectors."""

    own_encoder = "encoder"

    def __init__(self, config: SubwordAttentionSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.encoder = SubwordEncoder(config, sizes.dimensions)

    def forward(self, rows: SubwordRows) -> Tensor:
        packing = Packing.of(rows.sentences)
        return unit(self.encoder(self.embedding(rows, packing.positions), packing))
