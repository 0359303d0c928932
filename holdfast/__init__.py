"""holdfast: stream graphs on Spark in which you say, per subgraph, what a failure may cost."""
