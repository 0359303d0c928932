"""Passes about logs in a graph: aggregates whose checkpoints stand in their output log."""
