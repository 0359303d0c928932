"""What operators with keyed state do with the rows of a partition. Ships to executors."""
