"""The service of the doors over a control and its engine, and its events."""
