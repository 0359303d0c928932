"""A soak: a mixed application for hours under faults of all kinds, with what was lost, doubled and out of order, and what grew."""
