"""Operators with state at work: what each remembers, pinned, made durable, restored."""
