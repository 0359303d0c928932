"""Notes: bytes that a writer of a log wants to find again, as they are found in its segments."""
