"""The FROM clause: sources, windows, joins, frequencies."""
