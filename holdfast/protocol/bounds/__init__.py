"""How much may go wrong: loss budgets, and rows that end processes."""
