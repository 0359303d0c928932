"""How long people wait: until a row is visible, until a program shows its first row."""
