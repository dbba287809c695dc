"""Every table and figure of the paper, and what goes beyond it, by the name that the command line knows."""

from apes.paper.amplification import FIG2A, FIG5, FIG6
from apes.paper.experiment import Experiment
from apes.paper.fig2b import FIG2B
from apes.paper.fig4 import FIG4
from apes.paper.frontier.frontier import FRONTIER
from apes.paper.sweeps import FIG3A, FIG3B
from apes.paper.table3 import TABLE3
from apes.paper.table4 import TABLE4
from apes.paper.variance_and_bias import FIG7, FIG8

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (TABLE3, TABLE4, FIG2A, FIG2B, FIG3A, FIG3B, FIG4, FIG5, FIG6, FIG7, FIG8, FRONTIER)
}
