"""Keyed maps of immutable Arrow segments: versions, look-ups, merges, change logs."""
