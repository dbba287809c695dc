"""Compiled loops of the client: draws and choices; handed tables and scratch one by one, however many there are."""
