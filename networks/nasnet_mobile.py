"""NASNet-A (4 @ 1056), "NASNet mobile", from the cells of Zoph et al. 2018 (arXiv 1707.07012, figure 4).

No maintained package has this size. Parameter names are those of the common PyTorch checkpoint (`nasnetamobile` of
`pretrainedmodels`), so that it loads as it is. A cell reads the two maps before it, h (current) and p (previous), each
adapted to the cell's filters; every sum is a map of its own. Padding is TensorFlow's SAME: the odd row and column are
at the bottom right, and no maximum or average counts them.
"""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DIMENSIONS = 1056
STEM = 32  # filters of the first convolution
FILTERS = DIMENSIONS // 24  # of an operation in the first stage; each reduction doubles them
STAGES, NORMAL_CELLS = 3, 4
# A row is a sum: the left operation and the map it reads, then the right ones. A digit is the sum of that row. In a
# reduction cell, what reads h or p has stride 2.
_NORMAL = (
    ("sep5", "h", "sep3", "p"),
    ("sep5", "p", "sep3", "p"),
    ("mean", "h", "same", "p"),
    ("mean", "p", "mean", "p"),
    ("sep3", "h", "same", "h"),
)
_REDUCTION = (
    ("sep5", "h", "sep7", "p"),
    ("max3", "h", "sep7", "p"),
    ("mean", "h", "sep5", "p"),
    ("mean", "0", "same", "1"),
    ("sep3", "0", "max3", "h"),
)


class NasnetMobile(nn.Module):
    """The network and its classifier; 5,289,978 parameters for 1,000 classes."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv0 = _named(conv=nn.Conv2d(3, STEM, 3, stride=2, bias=False), bn=_norm(STEM))
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
        self.sums, self.joined = (_REDUCTION, "1234") if reduces else (_NORMAL, "p01234")
        self.conv_1x1 = _adapter(current, filters)
        self.halves = adapter == "halving"
        if self.halves:
            self.path_1, self.path_2 = (_named(conv=_pointwise(previous, filters // 2)) for _ in range(2))
            self.final_path_bn = _norm(filters)
        else:
            self.conv_prev_1x1 = _adapter(previous, filters) if adapter == "1x1" else nn.Identity()
        for number, (left, of_left, right, of_right) in enumerate(self.sums):
            for side, operation, of in (("left", left, of_left), ("right", right, of_right)):
                channels = previous if adapter == "none" and of == "p" else filters
                stride = 2 if reduces and of in "hp" else 1
                self.add_module(f"comb_iter_{number}_{side}", _operation(operation, channels, filters, stride))

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        maps = {"h": self.conv_1x1(current), "p": self.adapted(previous)}
        for number, (_, of_left, _, of_right) in enumerate(self.sums):
            left, right = (self.get_submodule(f"comb_iter_{number}_{side}") for side in ("left", "right"))
            maps[str(number)] = left(maps[of_left]) + right(maps[of_right])
        return torch.cat([maps[name] for name in self.joined], 1)

    def adapted(self, previous: Tensor) -> Any:
        if not self.halves:
            return self.conv_prev_1x1(previous)
        even = F.relu(previous)  # two convolutions of every second pixel, of the even and of the odd ones
        odd = F.pad(even, (0, 1, 0, 1))[:, :, 1:, 1:]
        halves = [self.path_1(even[:, :, ::2, ::2]), self.path_2(odd[:, :, ::2, ::2])]
        return self.final_path_bn(torch.cat(halves, 1))


def _operation(name: str, channels: int, filters: int, stride: int) -> nn.Module:
    if name.startswith("sep"):
        return _separable(channels, filters, int(name[-1]), stride)
    return nn.Identity() if name == "same" else _Pool(name, stride)


class _Pool(nn.Module):
    """The largest or the mean of 3 x 3 cells."""

    def __init__(self, name: str, stride: int) -> None:
        super().__init__()
        self.name, self.stride = name, stride

    def forward(self, cells: Tensor) -> Tensor:
        # With stride 2, windows of an even side begin at its first pixel and overhang its end.
        padding = [1 if self.stride == 1 else side % 2 for side in cells.shape[2:]]
        if self.name == "max3":
            return F.max_pool2d(cells, 3, self.stride, padding, ceil_mode=True)
        return F.avg_pool2d(cells, 3, self.stride, padding, ceil_mode=True, count_include_pad=False)


class _Pad(nn.Module):
    """Zeros around a map that a convolution with stride 2 reads."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, cells: Tensor) -> Tensor:
        height, width = (self.kernel - 2 + side % 2 for side in cells.shape[2:])
        return F.pad(cells, (width // 2, width - width // 2, height // 2, height - height // 2))


def _separable(channels: int, filters: int, kernel: int, stride: int) -> nn.Sequential:
    """Twice: ReLU, depthwise and 1 x 1 convolution, batch normalisation; the first time with the stride."""
    return _named(
        relu_1=nn.ReLU(),
        pad=nn.Identity() if stride == 1 else _Pad(kernel),
        separable_1=_depthwise(channels, filters, kernel, stride),
        bn_sep_1=_norm(filters),
        relu_2=nn.ReLU(),
        separable_2=_depthwise(filters, filters, kernel, 1),
        bn_sep_2=_norm(filters),
    )


def _depthwise(channels: int, filters: int, kernel: int, stride: int) -> nn.Sequential:
    padding = kernel // 2 if stride == 1 else 0
    depthwise = nn.Conv2d(channels, channels, kernel, stride, padding, groups=channels, bias=False)
    return _named(depthwise_conv2d=depthwise, pointwise_conv2d=_pointwise(channels, filters))


def _adapter(channels: int, filters: int) -> nn.Sequential:
    return _named(relu=nn.ReLU(), conv=_pointwise(channels, filters), bn=_norm(filters))


def _pointwise(channels: int, filters: int) -> nn.Conv2d:
    return nn.Conv2d(channels, filters, 1, bias=False)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=0.001)


def _named(**parts: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(parts))
