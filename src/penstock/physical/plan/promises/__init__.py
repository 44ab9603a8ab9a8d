"""The specs of what follows promises of streams: thin inputs, groups and rows that are closed."""
