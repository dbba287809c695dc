"""How pictures look and are written: one colour per meaning, faint grids, PNG files that appear whole."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from apes.storage.files import write_whole

# Blue is what is proved, and ours; brown is what stands against it; sand is what is only published.
BLUE, BROWN, SAND, PURPLE = "#1b6ca8", "#b3541e", "#d9a273", "#7a5c99"
GREY, DARK = "#9a9a9a", "#444444"


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


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, whole or not at all."""
    write_whole(path, lambda file: figure.savefig(file, format="png", dpi=120))
