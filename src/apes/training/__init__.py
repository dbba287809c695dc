"""Rounds, their gate, and the loops around them."""
