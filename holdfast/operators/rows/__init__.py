"""Operators that choose, order or pair whole rows: dedup, sort, top_n, zip."""
