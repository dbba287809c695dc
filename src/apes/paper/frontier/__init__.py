"""The frontier: accuracy against the certified epsilon of a whole training, of ours and of others."""
