"""Axes at round values; charts whose marks lie where the numbers say; escaped, well-formed SVG."""

import math
import re
from xml.etree import ElementTree

import pytest

from training.evaluation.axes import Axis, axis_over, round_ticks
from training.evaluation.figures import Series, bin_counts, histogram, interval_axis, interval_plot, line_chart
from training.evaluation.svg import element, number


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, (0, 20, 40, 60, 80, 100)),
        (48.6, 82.7, (40, 50, 60, 70, 80, 90)),
        (0.12, 0.31, (0.1, 0.15, 0.2, 0.25, 0.3, 0.35)),
        (-0.3, 0.3, (-0.4, -0.2, 0, 0.2, 0.4)),
        (1, 12, (0, 5, 10, 15)),
        (1000, 5200, (1000, 2000, 3000, 4000, 5000, 6000)),
    ],
)
def test_ticks_are_round_and_hold_the_values(low, high, expected):
    assert round_ticks(low, high) == pytest.approx(expected)


def test_ticks_print_without_rounding_noise():
    assert round_ticks(0.0, 0.5) == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.37, -4.0, 100.0, 12345.0])
def test_equal_ends_get_ticks_around_them(value):
    ticks = round_ticks(value, value)
    assert ticks[0] < value < ticks[-1]


def test_whole_ticks_are_whole():
    assert round_ticks(1, 1, whole=True) == (0, 1, 2)
    assert round_ticks(1, 3, most=8, whole=True) == (1, 2, 3)


def test_labels_share_their_decimals_and_use_a_true_minus():
    assert [text for _, text in Axis((-0.5, 0.0, 0.5), 0, 10).labels()] == ["−0.5", "0.0", "0.5"]
    assert [text for _, text in Axis((0.0, 1000.0, 2000.0), 0, 10).labels()] == ["0", "1,000", "2,000"]


def test_an_axis_places_values_in_proportion():
    axis = axis_over([0, 100], start=200, end=0)
    assert [axis.place(value) for value in (0, 25, 100)] == [200, 150, 0]


def test_numbers_are_short():
    assert [number(value) for value in (1.0, 1.239, -0.001, 100)] == ["1", "1.24", "0", "100"]


def test_text_and_attributes_are_escaped():
    drawn = element("text", "<b> & 'c'", class_='"x"', text_anchor="end")
    assert ElementTree.fromstring(drawn).text == "<b> & 'c'"
    assert ElementTree.fromstring(drawn).attrib == {"class": '"x"', "text-anchor": "end"}


def _shapes(drawn, tag, class_):
    return [shape for shape in ElementTree.fromstring(drawn).iter(tag) if shape.get("class") == class_]


def _points(path):
    return [tuple(map(float, pair)) for pair in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path.get("d"))]


def test_a_line_goes_through_its_points():
    drawn = line_chart("AUC", [Series("AUC", ((0, 50.0), (5, 60.0), (10, 100.0)))], x_label="epoch")
    (line,) = _shapes(drawn, "path", "line")
    (x0, y0), (x1, y1), (x2, y2) = _points(line)
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert (y0 - y1) * 4 == pytest.approx(y1 - y2, abs=0.05)


def test_gaps_break_a_line_and_lone_points_are_dots():
    points = ((1, 0.5), (2, 0.4), (3, None), (4, 0.3), (5, math.nan), (6, 0.2), (7, 0.1))
    drawn = line_chart("loss", [Series("loss", points)], x_label="epoch")
    assert [len(_points(path)) for path in _shapes(drawn, "path", "line")] == [2, 2]
    assert len(_shapes(drawn, "circle", "dot")) == 1


def test_the_marked_epoch_has_a_ring_on_each_line_at_its_rule():
    series = [Series("a", ((1, 1.0), (2, 2.0))), Series("b", ((1, 3.0), (2, 4.0)))]
    drawn = line_chart("loss", series, x_label="epoch", marked=2)
    (rule,) = _shapes(drawn, "line", "rule")
    rings = _shapes(drawn, "circle", "ring")
    assert [ring.get("cx") for ring in rings] == [rule.get("x1")] * 2


def test_a_marked_epoch_outside_the_history_is_not_drawn():
    drawn = line_chart("loss", [Series("a", ((1, 1.0), (2, 2.0)))], x_label="epoch", marked=40)
    assert not _shapes(drawn, "line", "rule")


def test_one_epoch_is_a_dot():
    drawn = line_chart("loss", [Series("loss", ((1, 0.4),))], x_label="epoch", marked=1)
    assert len(_shapes(drawn, "circle", "dot")) == len(_shapes(drawn, "circle", "ring")) == 1


def test_bins_are_half_open_but_the_last():
    counts = bin_counts([0, 4.9, 5, 50, 99.9, 100])
    assert (counts[0], counts[1], counts[10], counts[19], sum(counts)) == (2, 1, 1, 2, 6)


def test_bars_are_as_high_as_their_counts():
    drawn = histogram("AUC", [1, 1, 1, 1, 52, 52], x_label="AUC", reference=50, reference_name="chance")
    four, two = (float(bar.get("height")) for bar in _shapes(drawn, "rect", "bar"))
    assert four == pytest.approx(2 * two)
    assert "6 documents" in drawn


def test_an_interval_spans_its_ends_and_is_absent_when_unknown():
    axis = interval_axis([0, 100])
    (bar,) = _shapes(interval_plot("AUC", 60, axis, low=50, high=75), "rect", "interval")
    assert float(bar.get("x")) == pytest.approx(axis.place(50))
    assert float(bar.get("width")) == pytest.approx(axis.place(75) - axis.place(50))
    assert not _shapes(interval_plot("AUC", 60, axis), "rect", "interval")
