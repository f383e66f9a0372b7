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

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DIMENSIONS = 1056
STEM = 32  # filters of the first convolution
FILTERS = DIMENSIONS // 24  # of an operation in the first stage; each reduction doubles them
STAGES, NORMAL_CELLS = 3, 4
# Kernels of the separable convolutions of a cell, by name in `comb_iter_<name>`.
_NORMAL = {"0_left": 5, "0_right": 3, "1_left": 5, "1_right": 3, "4_left": 3}
_REDUCTION = {"0_left": 5, "0_right": 7, "1_right": 7, "2_right": 5, "4_left": 3}


class NasnetMobile(nn.Module):
    """The network and its classifier; 5,289,978 parameters for 1,000 classes."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv0 = nn.Sequential(OrderedDict(conv=nn.Conv2d(3, STEM, 3, stride=2, bias=False), bn=_norm(STEM)))
        self.cell_stem_0 = _Cell(STEM, STEM, FILTERS // 4, reduces=True, adapter="none")
        self.cell_stem_1 = _Cell(FILTERS, STEM, FILTERS // 2, reduces=True, adapter="halving")
        current, previous = 2 * FILTERS, FILTERS  # channels
        for stage in range(STAGES):
            filters = FILTERS * 2**stage
            if stage:
                self.add_module(f"reduction_cell_{stage - 1}", _Cell(current, previous, filters, reduces=True))
                current, previous = 4 * filters, current
            for cell in range(NORMAL_CELLS):
                made = _Cell(current, previous, filters, reduces=False, adapter="1x1" if cell else "halving")
                self.add_module(f"cell_{6 * stage + cell}", made)
                current, previous = 6 * filters, current
        self.last_linear = nn.Linear(DIMENSIONS, classes)

    def features(self, pictures: Tensor) -> Tensor:
        """Return the N x 1056 x 7 x 7 map of the last cell, before its ReLU, of N x 3 x 224 x 224 pictures."""
        current: Tensor = self.conv0(pictures)
        previous = current
        for cell in self.children():
            if isinstance(cell, _Cell):
                current, previous = cell(current, previous), current
        return current


class _Cell(nn.Module):
    """A cell; its previous map is read as it is, adapted by a 1 x 1 convolution, or, of twice the size, halved."""

    def __init__(self, current: int, previous: int, filters: int, *, reduces: bool, adapter: str = "1x1") -> None:
        """Make a cell.

        Args:
            current: channels of the current map.
            previous: channels of the previous map.
            filters: channels of an operation.
            reduces: whether it is a reduction cell.
            adapter: of the previous map: `none`, `1x1` or `halving`.
        """
        super().__init__()
        self.reduces, self.adapter = reduces, adapter
        self.conv_1x1 = _adapter(current, filters)
        if adapter == "1x1":
            self.conv_prev_1x1 = _adapter(previous, filters)
        elif adapter == "halving":
            for name in ("path_1", "path_2"):
                half = nn.Conv2d(previous, filters // 2, 1, bias=False)
                self.add_module(name, nn.Sequential(OrderedDict(conv=half)))
            self.final_path_bn = _norm(filters)
        for name, kernel in (_REDUCTION if reduces else _NORMAL).items():
            channels = previous if adapter == "none" and name.endswith("right") else filters
            stride = 2 if reduces and name != "4_left" else 1
            self.add_module(f"comb_iter_{name}", _Separable(channels, filters, kernel=kernel, stride=stride))

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        part = self.get_submodule
        h, p = part("conv_1x1")(current), self.adapted(previous)
        if self.reduces:
            height, width = h.shape[2:]  # windows of an even side begin at its first pixel and overhang its end
            padding = (height % 2, width % 2)
            largest = F.max_pool2d(h, 3, stride=2, padding=padding, ceil_mode=True)
            mean = F.avg_pool2d(h, 3, 2, padding, ceil_mode=True, count_include_pad=False)
            zero = part("comb_iter_0_left")(h) + part("comb_iter_0_right")(p)
            one, two = largest + part("comb_iter_1_right")(p), mean + part("comb_iter_2_right")(p)
            return torch.cat([one, two, _mean(zero) + one, part("comb_iter_4_left")(zero) + largest], 1)
        zero = part("comb_iter_0_left")(h) + part("comb_iter_0_right")(p)
        one = part("comb_iter_1_left")(p) + part("comb_iter_1_right")(p)
        return torch.cat([p, zero, one, _mean(h) + p, 2 * _mean(p), part("comb_iter_4_left")(h) + h], 1)

    def adapted(self, previous: Tensor) -> Any:
        part = self.get_submodule
        if self.adapter != "halving":
            return part("conv_prev_1x1")(previous) if self.adapter == "1x1" else previous
        even = F.relu(previous)  # two convolutions of every second pixel, of the even and of the odd ones
        odd = F.pad(even, (0, 1, 0, 1))[:, :, 1:, 1:]
        halves = [part("path_1")(even[:, :, ::2, ::2]), part("path_2")(odd[:, :, ::2, ::2])]
        return part("final_path_bn")(torch.cat(halves, 1))


class _Separable(nn.Module):
    """Twice: ReLU, depthwise and 1 x 1 convolution, batch normalisation; the first time with the stride."""

    def __init__(self, channels: int, filters: int, *, kernel: int, stride: int) -> None:
        super().__init__()
        self.separable_1 = _separable(channels, filters, kernel, stride)
        self.bn_sep_1 = _norm(filters)
        self.separable_2 = _separable(filters, filters, kernel, 1)
        self.bn_sep_2 = _norm(filters)
        self.kernel, self.stride = kernel, stride

    def forward(self, cells: Tensor) -> Tensor:
        cells = F.relu(cells)
        if self.stride > 1:  # SAME: the odd row and column are at the bottom right
            height, width = (self.kernel - 2 + size % 2 for size in cells.shape[2:])
            cells = F.pad(cells, (width // 2, width - width // 2, height // 2, height - height // 2))
        cells = F.relu(self.bn_sep_1(self.separable_1(cells)))
        normed: Tensor = self.bn_sep_2(self.separable_2(cells))
        return normed


def _separable(channels: int, filters: int, kernel: int, stride: int) -> nn.Sequential:
    padding = kernel // 2 if stride == 1 else 0
    depthwise = nn.Conv2d(channels, channels, kernel, stride, padding, groups=channels, bias=False)
    pointwise = nn.Conv2d(channels, filters, 1, bias=False)
    return nn.Sequential(OrderedDict(depthwise_conv2d=depthwise, pointwise_conv2d=pointwise))


def _adapter(channels: int, filters: int) -> nn.Sequential:
    convolution = nn.Conv2d(channels, filters, 1, bias=False)
    return nn.Sequential(OrderedDict(relu=nn.ReLU(), conv=convolution, bn=_norm(filters)))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=0.001)


def _mean(cells: Tensor) -> Tensor:
    return F.avg_pool2d(cells, 3, 1, 1, count_include_pad=False)
