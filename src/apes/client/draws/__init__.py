"""Compiled loops of the client: draws of reports, choices of coordinates; handed tables and scratch one by one, however many."""
