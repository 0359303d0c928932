"""What several kinds of keyed operators have in common."""
