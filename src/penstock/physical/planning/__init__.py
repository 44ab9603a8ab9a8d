"""From algebra to a physical plan: lowering, strategies, source predicates, ranges, layouts of aggregates."""
