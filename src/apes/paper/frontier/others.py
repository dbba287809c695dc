"""What others have published on MNIST: accuracy, the epsilon that goes with it, and whom that protects from whom."""

from dataclasses import dataclass

from apes.paper.printed import ACCURACY, EPSILON_UC_TABLE_3


@dataclass(frozen=True)
class Published:
    """A published point; its epsilon is what its authors print, not a certificate of ours."""

    name: str
    accuracy: float  # in per cent
    epsilon: float
    unit: str  # what is hidden, and from whom
    users: int
    dimensions: int


_PER_IMAGE = "one image, all that a user has; shuffle model"
_PER_ROUND = "one user, one round; shuffle model"
ON_MNIST = (
    Published("CLDP-SGD", 76.7, 5.0, _PER_IMAGE, 60_000, 13_170),
    Published("CLDP-SGD", 87.9, 10.0, _PER_IMAGE, 60_000, 13_170),
    # 81 x 7 x 7 scattering features and a bias, for each of ten classes.
    Published("DP-SGD, scattering", 98.7, 3.0, "one image; trusted server", 60_000, 39_700),
    Published("APES, the paper", ACCURACY["apes"]["uniform2"], EPSILON_UC_TABLE_3["apes"], _PER_ROUND, 10_000, 7_850),
    Published(
        "S-APES, the paper", ACCURACY["s-apes"]["uniform2"], EPSILON_UC_TABLE_3["s-apes"], _PER_ROUND, 10_000, 7_850
    ),
)
