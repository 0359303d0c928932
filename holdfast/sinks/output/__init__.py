"""What file sinks leave in a directory: its form, partitions, which columns fit, what becomes one file, compaction."""
