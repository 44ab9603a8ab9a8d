"""The input of each round: planning, rounds on disk, DataFrames."""
