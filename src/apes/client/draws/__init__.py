"""Compiled loops of the client: draws of reports, choices of coordinates."""
