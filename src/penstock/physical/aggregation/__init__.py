"""The parts of grouped aggregation: changes of groups, sums, bags of values, the rows that come out."""
