"""Continuous eventual checkpoints as pure code: records of windows, which are due, and what a backward scan finds."""
