"""The report in headless Chromium: legible on a phone and on a screen, light and dark."""

from pathlib import Path

import chromium
import pytest
from toolrunner import tool

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="Chromium is not installed")

WIDTHS = (360, 390, 768, 1280)
MEASURE = """window => {
  const page = window.document, root = page.documentElement;
  const texts = [...page.querySelectorAll("body *")].filter(
    e => e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()));
  const outside = texts.filter(e => !e.closest(".scroll") && e.getBoundingClientRect().right > root.clientWidth + 1);
  const style = window.getComputedStyle(page.body);
  return {
    width: root.clientWidth, scrolls: root.scrollWidth, smallest: Math.min(
      ...texts.map(e => parseFloat(window.getComputedStyle(e).fontSize))),
    outside: outside.map(e => e.textContent), background: style.backgroundColor, ink: style.color,
    verdict: page.querySelector(".verdict").getBoundingClientRect().top,
    broken: [...page.images].filter(i => !i.naturalWidth).length,
  };
}"""


def brightness(colour):
    return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_fits_and_is_legible(lab, scheme):
    for db in ("damaged", "media"):
        tool("report", db, "-o", f"{db}.html")
        for wanted, found in zip(WIDTHS, chromium.measure(Path(f"{db}.html"), WIDTHS, MEASURE, scheme), strict=True):
            assert found["width"] == wanted
            assert found["scrolls"] <= wanted and found["outside"] == [] and found["broken"] == 0
            assert found["smallest"] >= 12 and found["verdict"] < 200
            dark_page = brightness(found["background"]) < brightness(found["ink"])
            assert dark_page == (scheme == "dark")
