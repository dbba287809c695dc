"""Picture of a run: accuracy and loss over the rounds."""

from pathlib import Path

from apes.paper.style import BLUE, BROWN, panels, save
from apes.training.run import RoundMetrics


def draw_accuracy(metrics: tuple[RoundMetrics, ...], title: str, path: Path) -> None:
    """Draw test accuracy and loss over the rounds into a PNG file."""
    figure, (axes,) = panels(7, 4)
    rounds = [entry.round for entry in metrics]
    axes.plot(rounds, [100 * (entry.accuracy or 0.0) for entry in metrics], color=BLUE)
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy (%)", color=BLUE)
    losses = axes.twinx()
    losses.plot(rounds, [entry.loss or 0.0 for entry in metrics], color=BROWN, linestyle="--")
    losses.set_ylabel("test loss (nats)", color=BROWN)
    axes.set_title(f"{title}: {100 * (metrics[-1].accuracy or 0.0):.2f} % after {metrics[-1].round} rounds")
    save(figure, path)
