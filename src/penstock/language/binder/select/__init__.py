"""One SELECT and how they combine: grouping, set operations, ORDER BY, relation-to-stream operators."""
