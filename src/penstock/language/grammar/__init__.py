"""CQL's clauses on top of sqlglot's expression grammar: windows, then queries, then statements."""
