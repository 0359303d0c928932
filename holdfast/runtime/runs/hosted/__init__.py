"""Python operators in the driver at work: the user's instance and its threads, what it submits, which of its states are remembered."""
