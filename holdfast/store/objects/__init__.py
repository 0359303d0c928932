"""A store of immutable objects: S3 and its kin."""
