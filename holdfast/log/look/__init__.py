"""Looking at a log without changing it: what there is, whether it is what was written, files for people."""
