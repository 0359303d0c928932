"""What moves rows: the seam, Spark behind it, and a local one for tests."""
