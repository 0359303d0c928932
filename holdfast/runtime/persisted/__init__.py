"""Persisted streams at work: both ends of a log in one run, and elements that go on behind the last rows in their log."""
