"""Elements outside of regions in simulation, alone and mixed with a region in one graph."""
