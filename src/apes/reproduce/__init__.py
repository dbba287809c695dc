"""The paper, reproduced: every table and figure, one command each."""

from apes.reproduce.amplification import FIG2A, FIG5, FIG6
from apes.reproduce.experiment import Experiment
from apes.reproduce.fig2b import FIG2B
from apes.reproduce.fig4 import FIG4
from apes.reproduce.moments import FIG7, FIG8
from apes.reproduce.sweeps import FIG3A, FIG3B
from apes.reproduce.table3 import TABLE3
from apes.reproduce.table4 import TABLE4

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (TABLE3, TABLE4, FIG2A, FIG2B, FIG3A, FIG3B, FIG4, FIG5, FIG6, FIG7, FIG8)
}

__all__ = ["EXPERIMENTS", "Experiment"]
