"""Curves over rounds as inline SVG: colours are the page's, so that they fit light, dark and paper."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from apes.accounting.words import upwards
from apes.storage.documents import escaped

_WIDTH, _HEIGHT = 400.0, 240.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 12.0, 14.0, 34.0
# So many points are still drawn one by one.
_FEW = 40


@dataclass(frozen=True)
class Line:
    """A level across the picture that the curve is held against."""

    value: float
    name: str


@dataclass(frozen=True)
class Chart:
    """A curve over rounds 1, 2, ...: what it is, its values, None where there is none."""

    title: str
    values: Sequence[float | None]
    unit: str = ""
    from_zero: bool = False
    line: Line | None = None


def svg(chart: Chart) -> str:
    """The chart, with its last value written beside it, and all in words for who does not see it."""
    points = [
        (number, value) for number, value in enumerate(chart.values, 1) if value is not None and math.isfinite(value)
    ]
    if not points:
        return ""
    low, high, step = _axis([value for _, value in points], chart)
    rounds = len(chart.values)

    def at(number: float, value: float) -> tuple[float, float]:
        across = 0.5 if rounds == 1 else (number - 1) / (rounds - 1)
        up = (value - low) / (high - low)
        return (_LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM))

    places = [at(*point) for point in points]
    marks = places if len(places) <= _FEW else places[-1:]
    parts = [*_grid(low, high, step, chart.unit), *_rounds(rounds, at(1, low)[0], at(rounds, low)[0])]
    if chart.line is not None:
        parts += _level(at(1, chart.line.value)[1], chart.line)
    parts.append(f'<path class="ours curve" d="M{" L".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>')
    parts += [f'<circle class="ours" cx="{x:.1f}" cy="{y:.1f}" r="{3 if len(marks) > 1 else 4}"/>' for x, y in marks]
    is_falling = len(places) > 1 and places[-2][1] < places[-1][1]
    parts.append(_label(places[-1], _figure(points[-1][1], chart.unit), is_falling))
    inside = "\n".join(parts)
    words = escaped(_in_words(chart, points))
    return f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{words}">\n{inside}\n</svg>'


def _axis(values: Sequence[float], chart: Chart) -> tuple[float, float, float]:
    """Ends of the vertical axis and the distance of its grid, all round numbers; the level is within."""
    held = [*values, *([] if chart.line is None else [chart.line.value]), *([0.0] if chart.from_zero else [])]
    low, high = min(held), max(held)
    if high - low <= 1e-9 * max(1.0, abs(high)):
        room = max(abs(high), 1e-3) / 10
        low, high = (low, high + room) if chart.from_zero else (low - room, high + room)
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough * (1 - 1e-9))
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step


def _grid(low: float, high: float, step: float, unit: str) -> list[str]:
    """Levels with their numbers."""
    found = []
    for k in range(round((high - low) / step) + 1):
        value = low + k * step
        y = _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        found.append(f'<line class="grid" x1="{_LEFT:g}" x2="{_WIDTH - _RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
        text = escaped(_figure(0.0 if abs(value) < step / 1e6 else value, unit))
        found.append(f'<text x="{_LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    return found


def _rounds(rounds: int, first: float, last: float) -> list[str]:
    """The horizontal axis: the first round and the last."""
    y = _HEIGHT - _BOTTOM + 16
    found = [f'<text x="{first:.1f}" y="{y:g}" text-anchor="middle">1</text>']
    if rounds > 1:
        found.append(f'<text x="{last:.1f}" y="{y:g}" text-anchor="end">{rounds:,}</text>')
    middle = _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
    return [*found, f'<text x="{middle:.1f}" y="{_HEIGHT - 4:g}" text-anchor="middle">round</text>']


def _level(y: float, line: Line) -> list[str]:
    name = escaped(f"{line.name} {upwards(line.value)}")
    return [
        f'<line class="against dashed" x1="{_LEFT:g}" x2="{_WIDTH - _RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<text class="against" x="{_LEFT + 4:g}" y="{y - 4:.1f}">{name}</text>',
    ]


def _label(place: tuple[float, float], text: str, is_falling: bool) -> str:
    """The last value, above its point; or below, where the curve comes from above and there is room."""
    x, y = place
    middle = _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
    x, anchor = (x - 4, "end") if x > middle + 1 else (x, "middle")
    above = y + 18 if (is_falling and y < _HEIGHT - _BOTTOM - 20) or y < _TOP + 6 else y - 8
    return f'<text class="ours" x="{x:.1f}" y="{above:.1f}" text-anchor="{anchor}">{escaped(text)}</text>'


def _figure(value: float, unit: str) -> str:
    return f"{value:.4g}{unit}"


def _in_words(chart: Chart, points: Sequence[tuple[int, float]]) -> str:
    (first, start), (last, end) = points[0], points[-1]
    said = f"{chart.title}: {_figure(end, chart.unit)} after round {last}"
    if last != first:
        said = f"{chart.title}: from {_figure(start, chart.unit)} after round {first} to "
        said += f"{_figure(end, chart.unit)} after round {last}"
    return said if chart.line is None else f"{said}; {chart.line.name} {upwards(chart.line.value)}"
