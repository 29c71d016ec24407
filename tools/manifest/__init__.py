"""`manifest` commands, and the tree of tables that a manifest describes."""
