"""State of operators: exact encoding of Python values, and keyed maps of immutable Arrow segments."""
