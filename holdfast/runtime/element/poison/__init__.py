"""Steps whose rows may end the process that works at them: tried apart, and done without those rows."""
