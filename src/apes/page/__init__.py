"""The page with sliders: served on loopback, to whoever sits at this machine. Sees budgets, never data."""
