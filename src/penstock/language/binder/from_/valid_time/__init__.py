"""The valid time of sources: VALID clauses, lists of columns, and windows that periods decide."""
