"""What is run: how large, on which data, and with whose choices, the authors' or ours."""

from dataclasses import dataclass
from typing import Any

from apes.paper.parts import Part
from apes.terms.terms import Terms

DIMENSIONS = 7850  # 784 x 10 weights and 10 biases
DELTA_S = 1e-8  # the paper's delta of a shuffled coordinate
DELTA_USER = 3.6e-5  # the paper's delta of a user
KEPT = 0.2  # share of the coordinates that S-APES keeps
CLIP = 0.1  # the authors' clip bound
PUBLISHED, OURS = COLUMNS = ("as published", "ours")  # the two ways in which everything is trained
PAPER_DATA, PAPER_USERS, PAPER_ROUNDS = "mnist", 10_000, 40  # what the paper trained on, and how much

_CHOICES: dict[str, dict[str, Any]] = {
    # From the authors' public experiments: unit-norm images, labels (u + j) mod 10, FedProx, continuous reports.
    PUBLISHED: {"split": "label", "normalise": "unit-norm", "clip": CLIP, "learning_rate": 1.0}
    | {"update": "fedprox", "local_epochs": 10, "local_learning_rate": 1.0, "mu": 0.01},
    # Our defaults, on the authors' split: gradients, coded reports, a step as large as the noise allows.
    OURS: {"split": "label", "clip": CLIP},
}


@dataclass(frozen=True)
class Setting:
    """How large a reproduction is; by default as large as the paper's. Populations are of the figures of bounds."""

    data: str
    users: int = PAPER_USERS  # of a training run, and of the privacy columns
    rounds: int = PAPER_ROUNDS
    seeds: tuple[int, ...] = (1, 2, 3)  # one run for each
    populations: tuple[int, ...] = (1_000, 2_154, 4_642, 10_000, 21_544, 46_416, 100_000, 215_443, 464_159, 1_000_000)
    clips: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)  # of figure 3a
    ratios: tuple[float, ...] = (0.05, 0.1, 0.2)  # kept shares b/d of figure 3b
    sweep_rounds: int = 20  # of the runs of figures 3a and 3b
    targets: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # epsilons of the frontier
    quick: bool = False  # whether this is the coarse version

    @property
    def size(self) -> dict[str, Any]:
        """What a run was of, as figures keep it, and whether that is what the paper's accuracies are of."""
        size = {"data": self.data, "users": self.users, "rounds": self.rounds}
        return size | {"is_papers": tuple(size.values()) == (PAPER_DATA, PAPER_USERS, PAPER_ROUNDS)}


def quick(data: str) -> Setting:
    """A coarse version of everything, in a few minutes."""
    return Setting(
        data,
        users=1_000,
        rounds=5,
        seeds=(1, 2),
        populations=(1_000, 10_000, 100_000),
        clips=(0.03, 0.1, 0.3),
        ratios=(0.05, 0.2),
        sweep_rounds=3,
        targets=(1.0, 8.0),
        quick=True,
    )


def training(setting: Setting, column: str, framework: str, budgets: str, **changes: Any) -> list[Part]:
    """Training runs of one kind, one for each seed; ``changes`` are further fields of the plan."""
    plan = {"framework": framework, "budgets": budgets, **_CHOICES[column]}
    plan |= {"data": setting.data, "users": setting.users, "rounds": setting.rounds}
    if column == PUBLISHED and Terms(framework=framework).reports.name == "clip-laplace":
        plan["levels"] = "continuous"
    return [Part("train", plan | changes | {"seed": seed}) for seed in setting.seeds]
