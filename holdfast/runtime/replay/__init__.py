"""Replays: a stored stretch of a log through a topology, into files, never into its real sinks."""
