"""The pictures of docs/images: terminals, a recorded session and the report. Run as a program: `make pictures`.

Everything in them is what the commands print or write for the sample databases.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import tempfile
import termios
from html import escape
from pathlib import Path

import chromium
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

IMAGES = Path(__file__).parents[2] / "docs" / "images"
CELL, LINE, PAD = 8.4, 18, 14
INK, DIM, BACK = "#d6dee6", "#8592a0", "#12181f"
SECONDS = 5  # how long the session shows each command

NARROW = ["filter ls media", "sst ls media", "manifest timeline media --last 6"]
SESSION = [
    "db levels media",
    "db space media",
    "filter ls media --keyspace photos",
    "filter advise media --absent 0.5",
    "filter heat media --keyspace photos --height 6",
    "verify damaged",
    "repair damaged",
    "report damaged -o report.html",
]


def screen(line: str, columns: int) -> list[Text]:
    """Return what a command prints on a terminal, after its prompt."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
        os.environ.pop("COLUMNS", None)
        os.environ.pop("NO_COLOR", None)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.execv(sys.executable, [sys.executable, "-m", "lsmkv_tool", *line.split()])
    printed = b""
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:  # the program has ended
            break
        if not part:
            break
        printed += part
    os.waitpid(pid, 0)
    os.close(fd)
    lines = printed.decode().replace("\r\n", "\n").rstrip("\n").split("\n")
    return [Text.assemble("$ ", (f"lsmkv-tool {line}", "bold")), *map(Text.from_ansi, lines)]


def colour(style: Style, back: bool = False) -> str | None:
    found = style.bgcolor if back else style.color
    if found is None or found.is_default:
        return None
    return found.get_truecolor().hex


def draw_line(text: Text, y: float, console: Console) -> str:
    parts, x = [], float(PAD)
    for segment in Segment.simplify(text.render(console)):
        words, style = segment.text.rstrip("\n"), segment.style or Style()
        width = CELL * Text(words).cell_len
        if back := colour(style, back=True):
            parts.append(f'<rect x="{x:.1f}" y="{y - 14:.0f}" width="{width:.1f}" height="{LINE}" fill="{back}"/>')
        ink = colour(style) or (DIM if style.dim else INK)
        weight = ' font-weight="700"' if style.bold else ""
        if words.strip():
            fixed = f'x="{x:.1f}" y="{y:.0f}" textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs"'
            parts.append(f'<text {fixed} fill="{ink}"{weight} xml:space="preserve">{escape(words)}</text>')
        x += width
    return "".join(parts)


def draw_screen(lines: list[Text]) -> str:
    console = Console(color_system="truecolor", force_terminal=True)
    return "".join(draw_line(text, PAD + 14 + LINE * i, console) for i, text in enumerate(lines))


def svg(columns: int, rows: int, body: str, style: str = "") -> str:
    width, height = CELL * columns + 2 * PAD, LINE * rows + 2 * PAD
    font = "text{font-size:14px;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">'
        f'<style>{font}{style}</style><rect width="100%" height="100%" rx="8" fill="{BACK}"/>{body}</svg>\n'
    )


def still(lines: list[str], columns: int) -> str:
    """Draw the commands one below the other."""
    found: list[Text] = []
    for line in lines:
        found += [*([Text("")] if found else []), *screen(line, columns)]
    assert max(text.cell_len for text in found[1:]) <= columns
    return svg(columns, len(found), draw_screen(found))


def session(lines: list[str], columns: int) -> str:
    """Show the commands one after the other, over and over."""
    screens = [screen(line, columns) for line in lines]
    share = 100 / len(screens)
    style = (
        f"g{{opacity:0;animation:shown {SECONDS * len(screens)}s step-end infinite}}"
        f"@keyframes shown{{0%{{opacity:1}}{share:.3f}%{{opacity:0}}100%{{opacity:0}}}}"
    )
    body = "".join(
        f'<g style="animation-delay:{SECONDS * i}s">{draw_screen(lines_)}</g>' for i, lines_ in enumerate(screens)
    )
    return svg(columns, max(map(len, screens)), body, style)


def make(directory: Path) -> None:
    from lsmkv.compaction import automatic
    from lsmkv_tool.sample_db import make_samples

    automatic.IDLE_SECONDS = 3600.0  # no idle compaction changes the sample
    make_samples(directory)
    os.chdir(directory)
    for columns in (80, 120):
        (IMAGES / f"tool-{columns}.svg").write_text(still(NARROW, columns))
    (IMAGES / "session.svg").write_text(session(SESSION, 100))
    page = Path("report.html")  # the session has written it
    chromium.picture(page, IMAGES / "report.png", 1100, 1380)
    chromium.picture(page, IMAGES / "report-dark.png", 1100, 1380, "dark")
    chromium.picture(page, IMAGES / "report-phone.png", 390, 1380, "light")


def main() -> None:
    if chromium.PROGRAM is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as directory:
        make(Path(directory))


if __name__ == "__main__":
    main()
