"""Arrow values of the types of the language: exact decimals, intervals, JSON, and CAST between them."""
