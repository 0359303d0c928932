"""What ships to executors: importable functions and small frozen values. No pyspark but the task context."""
