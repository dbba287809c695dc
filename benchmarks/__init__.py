"""Benchmarks: ratios against something run in the same process."""
