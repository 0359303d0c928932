"""What a consistent region costs applications of many kinds, and chains of operators (document 004, section 7.2)."""
