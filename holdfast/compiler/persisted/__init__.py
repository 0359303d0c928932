"""Persisted streams: the ends of logs in the place of `persist`, and what a plan has of them."""
