"""How pictures look and are written: one colour per meaning, faint grids, files that appear whole."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from apes.storage.files import write_whole

# Blue is what is proved, and ours; brown is what stands against it; sand is what is only published.
BLUE, BROWN, SAND, PURPLE, GREEN = "#1b6ca8", "#b3541e", "#d9a273", "#7a5c99", "#3f7d4e"
GREY, DARK = "#9a9a9a", "#444444"
# Signs of a title that fit on a line, per inch of the picture.
_PER_INCH = 10


def panels(
    width: float, height: float, columns: int = 1, *, rows: int = 1, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """An empty picture of that size in inches, and its panels, row by row, each with a faint grid."""
    figure = Figure(figsize=(width, height), layout="constrained")
    found = list(figure.subplots(rows, columns, squeeze=False, sharey=sharey).flat)
    for axes in found:
        axes.grid(alpha=0.3)
    return figure, found


def log_ticks(axes: Axes, places: Sequence[float], base: float = 10) -> None:
    """Make the horizontal axis logarithmic, with plain labels at these places and nowhere else."""
    axes.set_xscale("log", base=base)
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.minorticks_off()


def shortened(text: str, most: int = 40) -> str:
    """A text that fits into a title: of a long one its beginning and its end.

    >>> shortened("uniform2"), shortened("file:" + "people/" * 10 + "budgets.csv", 20)
    ('uniform2', 'file:peop...dgets.csv')
    """
    half = (most - 2) // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


def folded(title: str, inches: float) -> str:
    """A title in lines that fit into so many inches; a dollar sign in a name begins no formula."""
    lines = textwrap.wrap(title, int(_PER_INCH * inches), break_long_words=True)
    return "\n".join(lines).replace("$", r"\$")


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's name ends in (.png, .pdf, .svg), whole or not at all."""
    kind = path.suffix.removeprefix(".").lower()
    write_whole(path, lambda file: figure.savefig(file, format=kind, dpi=120))
