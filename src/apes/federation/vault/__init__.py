"""The users' own process: data, budgets, keys, ledger."""
