"""Window buffers: the stored rows of row windows, of jumping windows, and the log of shared panes."""
