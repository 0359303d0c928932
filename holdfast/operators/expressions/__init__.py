"""Simple expressions on Arrow tables: exactly what Spark computes, in the tasks that keep the state."""
