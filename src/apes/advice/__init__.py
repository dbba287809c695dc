"""Advice: which certified way of training suits people with these budgets at a target, and what it costs whom."""
