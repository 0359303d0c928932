"""What the files of a log look like: frames, tails, Parquet segments, names, index."""
