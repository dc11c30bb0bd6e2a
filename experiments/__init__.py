"""Paper reproductions, sweeps and reports: each table or figure is a file."""
