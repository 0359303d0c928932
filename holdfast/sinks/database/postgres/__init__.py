"""What PostgreSQL has to itself: connections, types, what its tables look like, what its errors mean."""
