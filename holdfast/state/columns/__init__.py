"""Arrow columns as NumPy sees them: hashing, grouping, sorted rows."""
