"""Watching runs: what the event log of a store tells, as a picture in memory, and a page in the browser."""
