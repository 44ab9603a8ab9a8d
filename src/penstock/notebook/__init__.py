"""What a notebook shows: plans that draw themselves, and results as they come. IPython is no dependency."""
