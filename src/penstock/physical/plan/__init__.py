"""The physical plan as data: specs by family, steps, stages and exchanges."""
