"""What joins and barriers remember of each side, and how rows meet."""
