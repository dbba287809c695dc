"""Accounting: sees events, never data."""
