"""Scalar expressions: columns, literals, operators, function calls."""
