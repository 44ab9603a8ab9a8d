"""Sources and sinks seen together: the page of their options, and results that go where others write or read."""
