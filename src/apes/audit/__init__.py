"""Attacks on the real pipeline: what they achieve, beside what is certified."""
