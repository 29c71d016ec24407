"""`doctor`."""

from toolrunner import result


def test_doctor_checks_the_machine_and_leaves_no_file(tmp_path):
    found = {(row["area"], row["name"]): row for row in result("doctor", tmp_path)["rows"]}
    assert found["codecs", "xxh3"]["value"] in ("c", "python")
    assert found["file system", "writable"]["value"] == "yes" and ("machine", "CPU features") in found
    assert list(tmp_path.iterdir()) == []
