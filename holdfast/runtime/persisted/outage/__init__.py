"""Streams that are persisted for outages only: memory while who reads is there, the log while it is not."""
