"""The soak: a steady stream of numbered records, a run that everything around it kills, every record accounted for."""
