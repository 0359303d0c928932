"""The verbs with state and what they are told: aggregates, windows, joins, rows, Python per key."""
