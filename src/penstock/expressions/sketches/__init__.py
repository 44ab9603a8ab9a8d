"""Sketches as tables of cells: which cells a value falls into, and what their content says."""
