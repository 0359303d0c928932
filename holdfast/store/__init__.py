"""Where epochs live: one contract, several back ends that do not know each other."""
