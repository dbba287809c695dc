"""People whose rows are in memory, and every way to make them."""
