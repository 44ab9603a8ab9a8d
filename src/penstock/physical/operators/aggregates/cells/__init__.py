"""Sketches as tables of cells: their rows, and the blocks and lists of complete panes."""
