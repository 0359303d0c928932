"""What is measured: stateless, keyed, windowed and joining work."""
