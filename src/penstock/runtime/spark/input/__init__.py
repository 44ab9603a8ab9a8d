"""The input of each round: planning, rounds on disk, rate control, DataFrames."""
