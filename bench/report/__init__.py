"""Results: files, summaries, tables and pictures."""
