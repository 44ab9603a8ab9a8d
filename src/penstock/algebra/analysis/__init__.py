"""What is computed from a whole plan: periods, origins of columns, keys of operators, rows of constants."""
