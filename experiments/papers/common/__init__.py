"""What all tables and figures share: contexts, laws, means, verdicts, pages."""
