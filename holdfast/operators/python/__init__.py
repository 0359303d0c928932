"""The user's Python code with state per key, on executors; rows as it sees them."""
