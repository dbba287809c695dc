"""The shuffler: sees reports and who sent them, never the data."""
