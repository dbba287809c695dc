"""Data sets and how they are spread over users."""
