"""A federation on one machine: folders, scripts, processes."""
