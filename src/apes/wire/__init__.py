"""Bytes between the parties: sealed reports, frames, releases."""
