"""How data gets in and out: sources, sinks and dead letters (LANGUAGE 3). See `contract`."""
