"""Every command, with arguments for the sample files."""

from __future__ import annotations

import click

from lsmkv_tool.cli import cli

# Read-only commands, by argument.
ON_DATABASE = [
    "db info mydb",
    "db levels mydb",
    "db space mydb",
    "db get mydb user:00050",
    "db multi-get mydb user:00050 user:00051",
    "db scan mydb --from user:00040 --to user:00060",
    "db scan mydb --count",
    "db find mydb user:00042",
    "db properties mydb",
    "db stats mydb",
    "sst ls mydb",
    "sst verify mydb --deep",
    "filter ls mydb",
    "filter probe mydb user:00050",
    "filter fpr mydb --probes 20000",
    "filter heat mydb",
    "filter advise mydb",
    "wal ls mydb",
    "wal dump mydb",
    "wal verify mydb",
    "vlog ls mydb",
    "vlog info mydb",
    "vlog verify mydb",
    "manifest dump mydb",
    "manifest summarize mydb",
    "manifest check mydb",
    "manifest timeline mydb",
    "verify mydb",
    "verify mydb --deep",
    "repair mydb",
    "top mydb --count 1",
]
ON_TABLE = [
    "sst ls table.sst",
    "sst info table.sst",
    "sst layout table.sst",
    "sst blocks table.sst",
    "sst blocks table.sst --block 0",
    "sst scan table.sst",
    "sst verify table.sst --deep",
    "sst recompress table.sst",
    "sst diff table.sst table.sst",
    "filter ls table.sst",
    "filter info table.sst",
    "filter probe table.sst user:00050",
    "filter fpr table.sst --probes 20000",
    "filter heat table.sst",
]
ALONE = ["plan --keys 1M", "doctor .", "completion bash"]
CHANGING = [
    "db put mydb user:99999 Ada --yes",
    "db delete mydb user:00007 --yes",
    "db compact mydb --yes",
    "db flush mydb --yes",
    "db ingest mydb new.sst --yes",
    "filter rebuild mydb --bits 12 --yes",
    "db destroy mydb --yes",
]
# They write elsewhere, also while another process has the database open.
COPYING = ["db checkpoint mydb copy --yes", "backup mydb backups --yes"]
ON_REPOSITORY = ["restore backups restored --yes", "prune backups --keep 1 --yes"]
# Of a database with named keyspaces.
ON_KEYSPACES = [
    "db info shop --keyspace users",
    "db levels shop --keyspace users",
    "db space shop",
    "db get shop ada --keyspace users",
    "db scan shop --keyspace orders",
    "db find shop order:00299 --keyspace orders",
    "db stats shop --keyspace users",
    "sst ls shop",
    "filter ls shop --keyspace users",
    "filter probe shop ada --keyspace users",
    "wal dump shop",
    "manifest dump shop",
    "manifest summarize shop",
    "manifest check shop",
    "manifest timeline shop",
    "verify shop --deep",
    "repair shop",
]
CHANGING_KEYSPACES = [
    "db upgrade shop --yes",
    "db reset-clock shop --yes",
    "db put shop bob Bob --keyspace users --yes",
    "db delete shop ada --keyspace users --yes",
    "db compact shop --keyspace orders --yes",
    "db ingest shop new.sst --keyspace users --yes",
    "filter rebuild shop --keyspace orders --bits 14 --yes",
]
MAKING = [
    "sst build made.sst --from new.jsonl --yes",
    "report mydb -o report.html",
    "report shop --keyspace orders -o shop.html",
]
READING = [*ALONE, "backups backups", *ON_DATABASE, *ON_TABLE, *ON_KEYSPACES]
WRITING = [*MAKING, *COPYING, *ON_REPOSITORY, *CHANGING_KEYSPACES, *CHANGING]


def commands(command: click.Command = cli, name: str = "") -> list[tuple[str, click.Command]]:
    """Return (full name, command) of every command."""
    if not isinstance(command, click.Group):
        return [(name, command)]
    context = click.Context(command)
    found = []
    for child in command.list_commands(context):
        inner = command.get_command(context, child)
        assert inner is not None
        found += commands(inner, f"{name} {child}".strip())
    return found
