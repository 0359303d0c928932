"""What kills cost outside of regions."""
