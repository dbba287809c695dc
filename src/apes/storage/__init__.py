"""Files written whole, settings, databases, logs."""
