"""NASNet-A (4 @ 1056), "NASNet mobile", from the cells of Zoph et al. 2018 (arXiv 1707.07012, figure 4).

No maintained package has this size. Parameter names are those of the common PyTorch checkpoint (`nasnetamobile` of
`pretrainedmodels`), so that it loads as it is. A cell reads the two maps before it, h (current) and p (previous), each
adapted to the cell's filters; every sum is a map of its own. Padding is TensorFlow's SAME: the odd row and column are
at the bottom right, and no maximum or average counts them.

    normal cell                    reduction cell: what reads h or p has stride 2
      0: sep5(h) + sep3(p)           0: sep5(h) + sep7(p)
      1: sep5(p) + sep3(p)           1: max3(h) + sep7(p)
      2: avg3(h) + p                 2: avg3(h) + sep5(p)
      3: avg3(p) + avg3(p)           3: avg3(0) + 1
      4: sep3(h) + h                 4: sep3(0) + max3(h)
      out: p, 0, 1, 2, 3, 4          out: 1, 2, 3, 4
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DIMENSIONS = 1056
STEM = 32  # filters of the first convolution
FILTERS = DIMENSIONS // 24  # of an operation in the first stage; each reduction doubles them
STAGES, NORMAL_CELLS = 3, 4


class NasnetMobile(nn.Module):
    """N x 3 x 224 x 224 pictures to N x classes logits; 5,289,978 parameters for 1,000 classes."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv0 = nn.Sequential()
        self.conv0.add_module("conv", nn.Conv2d(3, STEM, 3, stride=2, bias=False))
        self.conv0.add_module("bn", _norm(STEM))
        self.cell_stem_0 = _FirstReductionCell(STEM, FILTERS // 4)
        self.cell_stem_1 = _StemReductionCell(FILTERS, STEM, FILTERS // 2)
        current, previous = 2 * FILTERS, FILTERS  # channels
        for stage in range(STAGES):
            filters = FILTERS * 2**stage
            if stage:
                self.add_module(f"reduction_cell_{stage - 1}", _ReductionCell(current, previous, filters))
                current, previous = 4 * filters, current
            for cell in range(NORMAL_CELLS):
                kind = _NormalCell if cell else _NormalCellAfterReduction
                self.add_module(f"cell_{6 * stage + cell}", kind(current, previous, filters))
                current, previous = 6 * filters, current
        self.last_linear = nn.Linear(DIMENSIONS, classes)
        self._order = [name for name, _ in self.named_children() if "cell" in name]

    def features(self, pictures: Tensor) -> Tensor:
        """Return the N x 1056 x 7 x 7 map of the last cell, after a ReLU."""
        current = previous = self.conv0(pictures)
        for name in self._order:
            current, previous = self.get_submodule(name)(current, previous), current
        return F.relu(current)

    def forward(self, pictures: Tensor) -> Tensor:
        logits: Tensor = self.last_linear(self.features(pictures).mean((2, 3)))
        return logits


class _Reduction(nn.Module):
    """The five sums of a reduction cell, from adapted maps."""

    def __init__(self, filters: int, *, previous: int) -> None:
        super().__init__()
        self.comb_iter_0_left = _Separable(filters, filters, kernel=5, stride=2)
        self.comb_iter_0_right = _Separable(previous, filters, kernel=7, stride=2)
        self.comb_iter_1_right = _Separable(previous, filters, kernel=7, stride=2)
        self.comb_iter_2_right = _Separable(previous, filters, kernel=5, stride=2)
        self.comb_iter_4_left = _Separable(filters, filters, kernel=3)

    def combine(self, current: Tensor, previous: Tensor) -> Tensor:
        largest = _pool(F.max_pool2d, current)
        zero = self.comb_iter_0_left(current) + self.comb_iter_0_right(previous)
        one = largest + self.comb_iter_1_right(previous)
        two = _pool(_average, current) + self.comb_iter_2_right(previous)
        three = _average(zero, 3, stride=1, padding=1) + one
        four = self.comb_iter_4_left(zero) + largest
        return torch.cat([one, two, three, four], 1)


class _FirstReductionCell(_Reduction):
    """The stem's first cell: both inputs are the first convolution's map, and the previous one is read as it is."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__(filters, previous=channels)
        self.conv_1x1 = _adapter(channels, filters)

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        return self.combine(self.conv_1x1(current), previous)


class _ReductionCell(_Reduction):
    def __init__(self, current: int, previous: int, filters: int) -> None:
        super().__init__(filters, previous=filters)
        self.conv_prev_1x1 = _adapter(previous, filters)
        self.conv_1x1 = _adapter(current, filters)

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        return self.combine(self.conv_1x1(current), self.conv_prev_1x1(previous))


class _NormalCell(nn.Module):
    def __init__(self, current: int, previous: int, filters: int) -> None:
        super().__init__()
        self.conv_1x1 = _adapter(current, filters)
        self.adapt_previous(previous, filters)
        self.comb_iter_0_left = _Separable(filters, filters, kernel=5)
        self.comb_iter_0_right = _Separable(filters, filters, kernel=3)
        self.comb_iter_1_left = _Separable(filters, filters, kernel=5)
        self.comb_iter_1_right = _Separable(filters, filters, kernel=3)
        self.comb_iter_4_left = _Separable(filters, filters, kernel=3)

    def adapt_previous(self, channels: int, filters: int) -> None:
        self.conv_prev_1x1 = _adapter(channels, filters)

    def previous(self, previous: Tensor) -> Tensor:
        adapted: Tensor = self.conv_prev_1x1(previous)
        return adapted

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        h, p = self.conv_1x1(current), self.previous(previous)
        zero = self.comb_iter_0_left(h) + self.comb_iter_0_right(p)
        one = self.comb_iter_1_left(p) + self.comb_iter_1_right(p)
        two = _average(h, 3, stride=1, padding=1) + p
        three = 2 * _average(p, 3, stride=1, padding=1)
        four = self.comb_iter_4_left(h) + h
        return torch.cat([p, zero, one, two, three, four], 1)


class _Halving(nn.Module):
    """Adapts a map of twice the size: two 1 x 1 convolutions of every second place, of the even and of the odd ones."""

    def halve_with(self, channels: int, filters: int) -> None:
        for name in ("path_1", "path_2"):
            path = nn.Sequential()
            path.add_module("conv", nn.Conv2d(channels, filters // 2, 1, bias=False))
            self.add_module(name, path)
        self.final_path_bn = _norm(filters)

    def halved(self, places: Tensor) -> Tensor:
        places = F.relu(places)
        shifted = F.pad(places, (0, 1, 0, 1))[:, :, 1:, 1:]
        both = [
            self.get_submodule("path_1")(places[:, :, ::2, ::2]),
            self.get_submodule("path_2")(shifted[:, :, ::2, ::2]),
        ]
        normed: Tensor = self.final_path_bn(torch.cat(both, 1))
        return normed


class _NormalCellAfterReduction(_NormalCell, _Halving):
    def adapt_previous(self, channels: int, filters: int) -> None:
        self.halve_with(channels, filters)

    def previous(self, previous: Tensor) -> Tensor:
        return self.halved(previous)


class _StemReductionCell(_Reduction, _Halving):
    """The stem's second cell: its previous map, the first convolution's, has twice the size of its current one."""

    def __init__(self, current: int, previous: int, filters: int) -> None:
        super().__init__(filters, previous=filters)
        self.conv_1x1 = _adapter(current, filters)
        self.halve_with(previous, filters)

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        return self.combine(self.conv_1x1(current), self.halved(previous))


class _Separable(nn.Module):
    """Twice: ReLU, depthwise and 1 x 1 convolution, batch normalisation; the first time with the stride."""

    def __init__(self, channels: int, filters: int, *, kernel: int, stride: int = 1) -> None:
        super().__init__()
        middle = filters if channels != filters else channels
        self.separable_1 = _separable_convolution(channels, middle, kernel, stride)
        self.bn_sep_1 = _norm(middle)
        self.separable_2 = _separable_convolution(middle, filters, kernel, 1)
        self.bn_sep_2 = _norm(filters)
        self.kernel, self.stride = kernel, stride

    def forward(self, places: Tensor) -> Tensor:
        places = F.relu(places)
        if self.stride > 1:
            places = F.pad(places, _same(places, self.kernel))
        places = F.relu(self.bn_sep_1(self.separable_1(places)))
        normed: Tensor = self.bn_sep_2(self.separable_2(places))
        return normed


def _separable_convolution(channels: int, filters: int, kernel: int, stride: int) -> nn.Sequential:
    padding = kernel // 2 if stride == 1 else 0
    both = nn.Sequential()
    depthwise = nn.Conv2d(channels, channels, kernel, stride, padding, groups=channels, bias=False)
    both.add_module("depthwise_conv2d", depthwise)
    both.add_module("pointwise_conv2d", nn.Conv2d(channels, filters, 1, bias=False))
    return both


def _adapter(channels: int, filters: int) -> nn.Sequential:
    adapter = nn.Sequential()
    adapter.add_module("relu", nn.ReLU())
    adapter.add_module("conv", nn.Conv2d(channels, filters, 1, bias=False))
    adapter.add_module("bn", _norm(filters))
    return adapter


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=0.001)


def _same(places: Tensor, kernel: int) -> tuple[int, int, int, int]:
    """Return the padding left, right, top, bottom of a SAME operation of stride 2."""
    height, width = (kernel - 2 + size % 2 for size in places.shape[2:])
    return (width // 2, width - width // 2, height // 2, height - height // 2)


def _pool(pool: object, places: Tensor) -> Tensor:
    """Return 3 x 3 windows of stride 2, SAME: those of an even side begin at its first place and overhang its end."""
    height, width = places.shape[2:]
    return pool(places, 3, stride=2, padding=(height % 2, width % 2), ceil_mode=True)  # type: ignore[operator, no-any-return]


def _average(
    places: Tensor, kernel: int, *, stride: int, padding: int | tuple[int, int], ceil_mode: bool = False
) -> Tensor:
    return F.avg_pool2d(places, kernel, stride, padding, ceil_mode, count_include_pad=False)
