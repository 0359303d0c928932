"""How the stored rows of operators are read for people, without running them."""
