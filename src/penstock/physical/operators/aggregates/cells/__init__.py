"""Sketches as tables of cells: their rows, registers, and the blocks of complete panes."""
