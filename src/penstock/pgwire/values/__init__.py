"""Values on the wire: types and results."""
