"""`holdfast impact`: the command, its table and its picture."""
