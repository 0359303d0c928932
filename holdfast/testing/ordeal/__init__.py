"""Ordeals: a user's program run undisturbed and under real faults, each of its sinks judged by its promise."""
