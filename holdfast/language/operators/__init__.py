"""The verbs, and what users say in them: aggregates, windows, joins, rows, Python per key."""
