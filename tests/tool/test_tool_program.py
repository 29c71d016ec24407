"""lsmkv-tool as a program: start-up time, pipes, signals, terminals, a running database."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from catalogue import ON_DATABASE
from toolrunner import program, tool

import lsmkv
from lsmkv_tool.db.stats_export import read_sample

RUNNING = """
import lsmkv, sys
with lsmkv.open(sys.argv[1], stats_export=True) as db:
    for i in range(2000):
        db.put(b"k%05d" % i, b"v" * 50)
    db.flush()
    db.put(b"unflushed", b"1")
    for i in range(3000):
        db.get(b"k%05d" % (2 * i))
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def running_db(tmp_path):
    """A database that another process has open and whose statistics it exports."""
    path = tmp_path / "db"
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield path
        process.communicate("\n", timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_reads_while_another_process_has_the_database_open(running_db):
    assert program("db", "get", running_db, "unflushed").out == "1\n"
    assert program("db", "scan", running_db, "--count").out == "2001\n"
    assert program("verify", running_db, "--deep").code == 0
    info = program("db", "info", running_db, "--json").json["result"]
    assert info["in_use"] and info["entries"] == 2000


def test_refuses_to_write_while_another_process_has_the_database_open(running_db):
    for line in (
        "db put DB k v --yes",
        "db compact DB --yes",
        "db destroy DB --yes",
        "repair DB --apply --yes",
    ):
        outcome = program(*[running_db if word == "DB" else word for word in line.split()])
        assert outcome.code == 3 and "another process has the database open" in outcome.err
    assert program("db", "get", running_db, "k").code == 1


def test_top_shows_the_running_database(running_db):
    while (found := read_sample(str(running_db))) is None or found.stats["reads"]["gets"] < 3000:
        time.sleep(0.05)
    outcome = program("top", running_db, "--count", 2, "--interval", 0.1, "--jsonl")
    first, second = outcome.lines
    assert outcome.code == 0 and first["rates"] is None
    assert second["rates"]["gets"] == 0 and second["time"] > first["time"]
    assert second["stats"]["reads"]["gets"] == 3000
    text = program("top", running_db, "--count", 1).out
    assert "3,000 lookups" in text and "L0" in text


BUSY = """
import lsmkv, os, random, sys, threading
done, n = threading.Event(), 0
pause = 0.05 if "LSMKV_SANITIZED" in os.environ else 0.002  # sanitizers slow readers down
threading.Thread(target=lambda: (sys.stdin.readline(), done.set()), daemon=True).start()
with lsmkv.open(sys.argv[1], write_buffer_size=64 << 10, target_file_size=128 << 10, stats_export=True) as db:
    while not done.is_set():
        for _ in range(50):
            n += 1
            db.put(b"user:%05d" % random.randrange(20000), b"v%08d" % n * 8, sync=n % 97 == 0)
        if n == 20000:
            print("ready", flush=True)
        done.wait(pause)
"""


def until_the_writer_rests(line):
    """A command gives up after 2 s (EAGAIN) if the writer replaces its files faster than it can read them."""
    for _ in range(20):
        outcome = tool(*line.split())
        if "faster than they can be read" not in outcome.err:
            break
        assert outcome.code == 4
    return outcome


def test_every_command_during_writes(tmp_path, monkeypatch):
    """Files come and go; no command may report that as damage."""
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", BUSY, "mydb"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        for line in ON_DATABASE:
            outcome = until_the_writer_rests(line)
            if line.startswith("repair"):
                assert outcome.code == 3
            elif line.startswith(("db get", "db multi-get", "db find")):
                assert outcome.code in (0, 1) and not outcome.err.startswith("lsmkv-tool")  # there, or not yet
            else:
                assert outcome.code == 0, (line, outcome.out, outcome.err)
        process.communicate("\n", timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_the_tool_starts_quickly():
    """Expensive imports wait until a command needs them."""
    code = """
        import sys
        import lsmkv_tool.cli
        heavy = {"rich", "lsmkv", "lsmkv_ext", "lz4", "xxhash", "importlib.metadata", "asyncio", "http"}
        print(sorted(heavy & {name.split(".")[0] for name in sys.modules} | heavy & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_program_names_its_extra():
    code = "import sys; sys.modules['click'] = None; from lsmkv_tool.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "lsmkv-tool needs click: pip install 'lsmkv[tool]'\n")


def test_a_closed_pipe_is_not_an_error(shared):
    command = f"{sys.executable} -m lsmkv_tool db scan mydb | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("user:00000\t")


def test_an_interrupt_is_130(shared):
    process = subprocess.Popen(
        [sys.executable, "-m", "lsmkv_tool", "top", "mydb"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Shells start background jobs with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert b"mydb" in process.stdout.readline()  # it runs until interrupted
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err == b"lsmkv-tool: interrupted\n"


@pytest.mark.parametrize("args", [[], ["no-such-command"], ["db", "get"], ["db", "scan", "x", "--limit", "-1"]])
def test_usage_errors_are_2(args):
    outcome = program(*args)
    assert outcome.code == (2 if args else outcome.code) and outcome.code in (0, 2)
    assert "Usage:" in outcome.out + outcome.err


def in_terminal(*args, answer=b"", cwd=None):
    """Run the tool on a pseudo-terminal. Return its exit code and output."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.environ.update(TERM="xterm-256color", COLUMNS="120")
        os.environ.pop("NO_COLOR", None)
        os.execv(sys.executable, [sys.executable, "-m", "lsmkv_tool", *args])
    os.write(fd, answer)
    seen = b""
    while True:
        select.select([fd], [], [], 60)
        try:
            part = os.read(fd, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    return os.waitstatus_to_exitcode(status), seen.decode()


def test_colour_on_a_terminal_and_none_in_a_pipe(shared):
    code, seen = in_terminal("filter", "heat", "table.sst", cwd=shared)
    assert code == 0 and "\x1b[38;2;" in seen
    code, seen = in_terminal("sst", "ls", "table.sst", cwd=shared)
    assert code == 0 and "table.sst" in seen and "\x1b[1m" in seen
    assert "\x1b" not in program("filter", "heat", "table.sst").out + program("sst", "ls", "table.sst").out


def test_a_writing_command_asks_on_a_terminal(lab):
    code, seen = in_terminal("db", "put", "mydb", "k", "v", answer=b"n\n", cwd=lab)
    assert code == 1 and "[y/N]" in seen and "nothing was changed" in seen
    assert program("db", "get", "mydb", "k").code == 1
    code, _ = in_terminal("db", "put", "mydb", "k", "v", answer=b"y\n", cwd=lab)
    assert code == 0 and program("db", "get", "mydb", "k").out == "v\n"


def test_the_shell_prompts_on_a_terminal(lab):
    code, seen = in_terminal("shell", "mydb", answer=b"get user:00050\nexit\n", cwd=lab)
    assert code == 0 and "lsmkv mydb>" in seen and "Person 50" in seen


@pytest.mark.parametrize(
    "line",
    [
        "db scan mydb",
        "db info mydb --json",
        "sst ls mydb --jsonl",
        "--help",
        "--version",
        "db --help",
        "db scan --help",
    ],
)
def test_stdout_on_a_full_disk_is_an_io_error(shared, line):
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "lsmkv_tool", *line.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 4
    assert done.stderr.startswith("lsmkv-tool: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("line", ["db scan mydb", "--help", "--version", "db --help", "db scan --help"])
def test_a_closed_pipe_is_no_error(shared, line):
    """As in `lsmkv-tool --help | head -1`."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        command = [sys.executable, "-m", "lsmkv_tool", *line.split()]
        done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (0, "")


def test_report_on_a_full_disk_is_an_io_error(shared):
    assert program("report", "mydb", "-o", "/dev/full", "--force").code == 4


def test_characters_outside_the_encoding_are_escaped(tmp_path):
    lsmkv.open(tmp_path / "db").close()
    name = os.fsencode(tmp_path) + b"/caf\xe9"
    os.rename(tmp_path / "db", name)
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "lsmkv_tool", "db", "info", name]
    for options in ([], ["--json"]):
        done = subprocess.run(command + options, env=environment, capture_output=True)
        assert done.returncode == 0 and b"caf\\udce9" in done.stdout
    json.loads(done.stdout)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell):
    assert "_LSMKV_TOOL_COMPLETE" in program("completion", shell).out


def test_completion_completes_commands():
    environment = os.environ | {
        "_LSMKV_TOOL_COMPLETE": "bash_complete",
        "COMP_WORDS": "lsmkv-tool fil",
        "COMP_CWORD": "1",
    }
    script = "import sys; sys.argv[0] = 'lsmkv-tool'; from lsmkv_tool.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert "filter" in done.stdout
