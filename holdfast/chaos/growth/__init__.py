"""How the protocol grows with the size of a region."""
