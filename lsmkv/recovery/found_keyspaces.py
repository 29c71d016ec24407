"""Which keyspaces a database had whose manifest is lost: its tables say it, and the operations in its logs.

Rules: docs/format.md, "Repair without a manifest".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lsmkv_ext.table.table import Table


def was_ingested(table: Table) -> bool:
    """Whether the table was written for an ingest: what it says of its keyspace does not count."""
    return bool(table.properties["number"] != table.number)


class FoundKeyspaces:
    """The names by id. `known` are those of a manifest, or the default keyspace alone."""

    def __init__(self, known: Mapping[int, str] | None = None) -> None:
        self.names: dict[int, str] = {0: "", **(known or {})}
        self.shadowed: dict[int, int] = {}  # ids whose name a higher id has, and that id
        self.next_id = max(self.names) + 1

    def add_tables(self, tables: Iterable[Table]) -> None:
        """Takes the keyspaces of tables that were not ingested. The highest id of a name keeps it."""
        for table in tables:
            keyspace = table.properties["keyspace_id"]
            if keyspace and not was_ingested(table):
                self.names[keyspace] = table.keyspace
        owners = {self.names[keyspace]: keyspace for keyspace in sorted(self.names)}
        self.shadowed = {k: owners[name] for k, name in self.names.items() if owners[name] != k}
        for keyspace in self.shadowed:
            del self.names[keyspace]
        self._pass(self.names | self.shadowed)

    def add_logged(self, keyspaces: Iterable[int]) -> list[int]:
        """Names the keyspaces that only logs know. Returns their ids."""
        unknown = sorted(set(keyspaces) - self.names.keys() - self.shadowed.keys())
        for keyspace in unknown:
            self.names[keyspace] = self._free_name(f"keyspace-{keyspace}")
        self._pass(unknown)
        return unknown

    def of(self, table: Table) -> int | None:
        """The keyspace that a table goes to; None if it is set aside."""
        if not was_ingested(table):
            keyspace: int = table.properties["keyspace_id"]
            return keyspace if keyspace in self.names else None
        if len(self.names) == 1:
            return 0
        name = f"ingested-{table.number}"
        self.names[self.next_id] = self._free_name(name)
        self.next_id += 1
        return self.next_id - 1

    def _free_name(self, name: str) -> str:
        while name in self.names.values():
            name += "~"
        return name

    def _pass(self, keyspaces: Iterable[int]) -> None:
        self.next_id = max([self.next_id, *(keyspace + 1 for keyspace in keyspaces)])
