"""Checks the built site (`make docs`): every link leads to a page and a heading that exist, no page loads anything from
another host, and every public name has a place in the reference.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attributes if value is not None}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag in LOADED and LOADED[tag] in values and values.get("rel") != "canonical":
            self.loaded.add(values[LOADED[tag]])


def wrong_links(pages: dict[Path, Page]) -> list[str]:
    found = []
    for path, page in pages.items():
        for link in sorted(page.links | page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded:
                    found.append(f"{path.relative_to(SITE)} loads {link}")
                continue
            base = SITE if parts.path.startswith("/") else path.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{path.relative_to(SITE)} links to {link}, which does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{path.relative_to(SITE)} links to {link}, which has no such heading")
    return found


def public_names() -> set[str]:
    """Those that tests/unit/test_docstrings.py holds to have a docstring."""
    sys.path.insert(0, str(ROOT / "tests" / "unit"))
    from public_names import everything

    return {name for name, _ in everything()}


def main() -> None:
    pages = {path.resolve(): Page(path) for path in SITE.rglob("*.html")}
    if not pages:
        sys.exit(f"there is no site in {SITE}")
    problems = wrong_links(pages)
    anchors = set().union(*(page.anchors for page in pages.values()))
    problems += [f"{name} is not in the reference" for name in sorted(public_names() - anchors)]
    if problems:
        sys.exit("\n".join([*problems, f"{len(problems)} problems in {len(pages)} pages"]))
    print(f"{len(pages)} pages: links, headings and names are complete")


if __name__ == "__main__":
    main()
