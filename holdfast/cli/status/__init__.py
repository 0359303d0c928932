"""How runs stand, for people in a terminal: tables of a status, of a store, and again and again."""
