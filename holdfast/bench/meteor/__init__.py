"""Ways to establish epochs, compared on applications whose state grows and falls (document 002)."""
