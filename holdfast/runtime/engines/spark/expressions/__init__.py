"""Stateless operators that tasks do by themselves: what Catalyst analysed of them, read as expressions."""
