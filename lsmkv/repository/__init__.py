"""Repositories of backups: versions of databases in a directory or an object store. docs/backup.md has the layout."""
