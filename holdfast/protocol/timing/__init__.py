"""When epochs come: in turn, when the state is small, or not at all because nothing is new."""
