"""How it is measured: sides that take turns, inputs, ratios, reports."""
