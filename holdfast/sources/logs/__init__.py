"""Logs as a source: of a topology, and of Spark itself."""
