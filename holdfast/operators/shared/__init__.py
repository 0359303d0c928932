"""What the logics of several kinds of keyed operators have in common."""
