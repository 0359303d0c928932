"""The driver side of Spark: sessions, the engine, the analyser."""
