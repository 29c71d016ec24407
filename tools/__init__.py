"""`lsmkv-tool`: inspect and maintain databases, tables, filters, logs and manifests.

`cli` lists the commands. Each command group has a directory, and its `commands` module lists the group.
"""
