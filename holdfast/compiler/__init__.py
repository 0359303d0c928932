"""Small passes from graph to plan: validate, regions, fusion, order, plan; and `explain`."""
