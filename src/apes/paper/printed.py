"""What the paper prints: the figures that ours stand beside."""

LAWS = ("uniform1", "gauss1", "mixgauss1", "uniform2", "gauss2", "mixgauss2")
"""Columns of Table 4."""

NON_PRIVATE = 84.35
"""Accuracy without noise, in per cent."""

EPSILON_C = {"ldp-min": 0.05, "pldp": 1.0, "unis": 0.069, "apes": 0.057, "s-apes": 0.057}
"""Table 3: central epsilon of a coordinate."""

EPSILON_UC_TABLE_3 = {"ldp-min": 40.1, "pldp": 7850.0, "unis": 76.9, "apes": 57.6, "s-apes": 25.6}
"""Table 3: central epsilon of a user, one round."""

EPSILON_UC = {
    "ldp-min": (40.1, 40.1, 40.1, 40.1, 40.1, 40.1),
    "pldp": (3925.0, 3925.0, 3925.0, 7850.0, 7850.0, 7850.0),
    "unis": (17.4, 17.4, 17.5, 79.6, 76.9, 76.9),
    "apes": (15.5, 15.3, 15.4, 57.6, 52.7, 53.7),
    "s-apes": (8.5, 8.5, 8.5, 25.6, 23.6, 23.9),
}
"""Table 4: central epsilon of a user, one round, in the order of `LAWS`."""

ACCURACY = {
    "ldp-min": (56.11, 56.11, 56.11, 56.11, 56.11, 56.11),
    "pldp": (75.64, 63.77, 67.75, 77.54, 64.81, 73.84),
    "unis": (75.64, 63.77, 67.75, 77.54, 64.81, 73.84),
    "apes": (78.77, 78.33, 79.06, 79.67, 79.29, 79.97),
    "s-apes": (75.7, 56.64, 77.01, 78.14, 73.4, 76.12),
}
"""Table 4: accuracy after 40 rounds in per cent, in the order of `LAWS`."""

NAMES = {"ldp-min": "LDP-Min", "pldp": "PLDP", "unis": "UniS", "apes": "APES", "s-apes": "S-APES"}
LAW_NAMES = {
    "uniform1": "Uniform1",
    "gauss1": "Gauss1",
    "mixgauss1": "MixGauss1",
    "uniform2": "Uniform2",
    "gauss2": "Gauss2",
    "mixgauss2": "MixGauss2",
    "uniform3": "Uniform3",
    "gauss3": "Gauss3",
    "mixgauss3": "MixGauss3",
}
