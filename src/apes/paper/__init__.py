"""The paper, reproduced: its tables and figures, and its convergence bound."""
