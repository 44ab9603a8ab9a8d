"""Sketches as tables of cells: which cells a value falls into, and what is estimated from their content."""
