"""Values on the wire: types, results and parameters."""
