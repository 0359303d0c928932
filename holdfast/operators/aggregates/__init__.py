"""Aggregates: running, over windows of time, of rows, by attribute."""
