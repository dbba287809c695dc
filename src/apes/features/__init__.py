"""Public maps that users apply to their rows on the device: they cost no privacy."""
