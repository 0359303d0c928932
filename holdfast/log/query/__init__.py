"""Retrospective queries: which rows of a log are wanted, and which segments can have them."""
