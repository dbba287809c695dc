"""Curves as SVG: well-formed, with figures in words, of any numbers that may come."""

import math
import xml.etree.ElementTree as ET  # of our own text

import pytest

from apes.report.charts import Chart, Line, svg

SVG = {
    "curve": Chart("Accuracy", [10.0, 50.0, 80.5], " %"),
    "one round": Chart("Accuracy", [80.5], " %"),
    "target": Chart("Epsilon", [0.1, 0.2], from_zero=True, line=Line(1.0, "target")),
    "nothing spent": Chart("Epsilon", [0.0, 0.0], from_zero=True),
    "always the same": Chart("Loss", [2.3] * 200),
    "gaps": Chart("Loss", [None, 1.0, math.nan, math.inf, 2.0]),
    "tiny": Chart("Loss", [1e-12, 2e-12]),
    "huge": Chart("Loss", [-1e300, 1e300]),
    "close to the target": Chart("Epsilon", [0.5, 0.9999], from_zero=True, line=Line(1.0, "target")),
    "hostile": Chart('<script>"&', [1.0], "<b>", line=Line(2.0, "</svg><script>")),
}


@pytest.mark.parametrize("chart", SVG.values(), ids=SVG)
def test_drawings_are_whole_and_within_their_frame(chart):
    root = ET.fromstring(svg(chart))
    assert root.get("role") == "img"
    assert root.get("aria-label").startswith(chart.title)
    assert {element.tag for element in root} <= {"line", "path", "circle", "text"}
    width, height = map(float, root.get("viewBox").split()[2:])
    dots = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in root.iter("circle")]
    assert dots
    assert all(0 <= x <= width and 0 <= y <= height for x, y in dots)
    for line in root.iter("line"):
        assert 0 <= float(line.get("y1")) <= height


def test_higher_values_are_higher_up():
    heights = [float(dot.get("cy")) for dot in ET.fromstring(svg(SVG["curve"])).iter("circle")]
    assert heights == sorted(heights, reverse=True)


def test_words_have_the_figures():
    assert ET.fromstring(svg(SVG["target"])).get("aria-label") == (
        "Epsilon: from 0.1 after round 1 to 0.2 after round 2; target 1"
    )


@pytest.mark.parametrize("values", [[], [None, None], [math.nan]])
def test_of_nothing_there_is_no_picture(values):
    assert svg(Chart("Loss", values)) == ""
