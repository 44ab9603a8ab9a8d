"""The inputs of a FROM while they are bound, and joins of two of them."""
