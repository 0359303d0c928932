"""Aggregate functions: what each keeps per key and how kept values flow together."""
