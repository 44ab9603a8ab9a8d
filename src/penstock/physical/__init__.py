"""How a query runs, free of Spark: element batches, operators, synopses, the planner and the executor of one stage."""
