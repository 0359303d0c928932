"""What the loss of each operator does to the output: kill one after another, compare with an undisturbed run."""
