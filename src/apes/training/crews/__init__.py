"""Crews: who does the work of a run's rounds, and how it gets to them."""
