"""Plans as data: the logical plan of a query as JSON, and back (docs/plans.md).

What is read is a form with names and texts. Each operator is built anew over its inputs and checked as the binder would
check it; expressions are parsed and bound as those of a statement. Types and properties are derived, never read.
"""
