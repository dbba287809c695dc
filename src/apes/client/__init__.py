"""The user's side: the only code that sees raw data."""
