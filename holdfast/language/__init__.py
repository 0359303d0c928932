"""What users write: topologies, streams, operators, annotations."""
