"""Charts whose marks lie where the numbers say; escaped, well-formed SVG with the same bytes every time."""

import math
import re
from functools import cache
from xml.etree import ElementTree

import pytest

from training.report.figures import line_chart, reliability_chart

TWO = {"a": [(1, 1.0), (2, 2.0)], "b": [(1, 3.0), (2, 4.0)]}


@cache
def charts():
    return [
        line_chart("loss", TWO, x_label="epoch", marked=2),
        reliability_chart("share", [10.0, 90.0], [20.0, 80.0], [5, 10]),
    ]


def shapes(drawn, tag, colour):
    found = ElementTree.fromstring(drawn).iter(tag)
    return [shape for shape in found if f"var(--{colour})" in shape.get("style", "")]


def points(path):
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", path.get("d"))]


def test_the_same_numbers_give_the_same_bytes():
    assert charts() == charts.__wrapped__()


def test_a_chart_needs_nothing_else_and_takes_its_colours_from_the_page():
    for drawn in charts():
        root = ElementTree.fromstring(drawn)
        assert root.get("role") == "img" and root.get("aria-label") == root.find("title").text
        assert root.find("desc").text
        assert "http" not in drawn and "url(" not in drawn and "<style" not in drawn and "font-family" not in drawn
        assert not re.search(r"#[0-9a-f]{6}\b", drawn) and "dc:date" not in drawn


def test_a_title_is_text():
    drawn = line_chart("<b> & 'c'", {"<i>": TWO["a"], "b": TWO["b"]}, x_label="<x>")
    assert ElementTree.fromstring(drawn).find("title").text == "<b> & 'c'"
    assert {"<i>", "<x>"} <= {text.text for text in ElementTree.fromstring(drawn).iter("text")}


def test_a_line_goes_through_its_points():
    (line,) = [
        path
        for path in shapes(
            line_chart("AUC", {"AUC": [(0, 50.0), (5, 60.0), (10, 100.0)]}, x_label="epoch"), "path", "accent"
        )
        if len(points(path)) == 3
    ]
    (x0, y0), (x1, y1), (x2, y2) = points(line)
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert (y0 - y1) * 4 == pytest.approx(y1 - y2, abs=0.05)


def test_gaps_break_a_line_and_lone_points_are_dots():
    known = ((1, 0.5), (2, 0.4), (3, None), (4, 0.3), (5, math.nan), (6, 0.2), (7, 0.1))
    drawn = line_chart("loss", {"loss": known}, x_label="epoch")
    lines = [path for path in shapes(drawn, "path", "accent") if path.get("d").count("L ") == 2]
    assert len(lines) == 1
    assert len(shapes(drawn, "use", "accent")) == 1


def test_the_marked_epoch_has_a_ring_on_each_line():
    assert len(shapes(line_chart("loss", TWO, x_label="epoch", marked=2), "use", "card")) == 2
    outside = line_chart("loss", TWO, x_label="epoch", marked=40)
    assert not shapes(outside, "use", "card") and "kept" not in outside


def test_one_epoch_is_a_dot_and_a_ring():
    drawn = line_chart("loss", {"loss": [(1, 0.4)]}, x_label="epoch", marked=1)
    assert len(shapes(drawn, "use", "accent")) == len(shapes(drawn, "use", "card")) == 1
