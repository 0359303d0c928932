"""Whole processes beside whole processes: from start to exit, behind a warm-up, or until the first row."""
