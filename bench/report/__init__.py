"""Results of a run: files, summaries, tables, plots."""
