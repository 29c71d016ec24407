"""`wal` commands, checked against the log."""

from toolrunner import rows


def test_dump_and_ls_agree_with_the_writes(shared):
    found = rows("wal", "dump", "mydb")
    assert [(row["op"], row["key"]) for row in found] == [("put", "user:00042"), ("delete", "user:00043")]
    listed, *ahead = rows("wal", "ls", "mydb")
    assert all(row["records"] == 0 for row in ahead)  # the next log may exist already
    assert (listed["first_seq"], listed["last_seq"]) == (found[0]["seq"], found[-1]["seq"])
    assert listed["verdict"] == "ok" and listed["synced"] == found[1]["offset"]
