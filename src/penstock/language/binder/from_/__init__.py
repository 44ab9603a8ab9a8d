"""The FROM clause: sources, windows, joins, frequencies, and the valid time of sources."""
