"""Kinds of operators: one object each that answers what is asked about it, and the logic of its tasks, which ships to
executors."""
