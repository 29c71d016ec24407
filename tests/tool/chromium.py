"""Chromium without a screen: measures pages and takes pictures of them."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--allow-file-access-from-files",
]
SCHEMES = {"dark": 0, "light": 1}
# A window is at least 500 pixels wide; a frame may be as narrow as a phone.
FRAMES = """<body style="{style}">{frames}<pre id="found" hidden></pre><script>
const measure = {measure};
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => measure(frame.contentWindow));
  document.getElementById("found").textContent = JSON.stringify(found);
}});
</script></body>"""


def run(page: Path, scheme: str, *flags: str) -> str:
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory() as profile:
        command = [PROGRAM, *FLAGS, f"--user-data-dir={profile}", *flags]
        command += [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", page.resolve().as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def frames(page: Path, widths: Sequence[int], height: int, style: str, measure: str = "() => null") -> str:
    source = html.escape(page.resolve().as_uri())
    inner = "".join(f'<iframe src="{source}" width="{w}" height="{height}" style="border:0"></iframe>' for w in widths)
    return FRAMES.format(frames=inner, style=style, measure=measure)


def measure(page: Path, widths: Sequence[int], function: str, scheme: str = "light") -> list[Any]:
    """Return what a JavaScript function of a window returns for the page at each width."""
    wrapper = page.with_name("frames.html")
    wrapper.write_text(frames(page, widths, 800, "margin:0", function))
    dom = run(wrapper, scheme, "--window-size=1400,900", "--dump-dom")
    found = re.search(r'<pre id="found"[^>]*>(.*?)</pre>', dom, re.DOTALL)
    assert found and found[1], "the page was not measured"
    return json.loads(html.unescape(found[1]))


def picture(page: Path, target: Path, width: int, height: int, scheme: str = "light") -> None:
    """Write a picture of the first `height` pixels of the page, `width` pixels wide."""
    wrapper = page.with_name("frames.html")
    style = "margin:0;background:#808890;display:flex;justify-content:center"
    wrapper.write_text(frames(page, [width], height, style))
    run(wrapper, scheme, f"--window-size={max(500, width)},{height}", f"--screenshot={target.resolve()}")
