"""Hooks of `mkdocs build` (mkdocs.yml): reference pages, pages from outside docs/, and links between all of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from scripts.site.reference import ROOT, pages

OUTSIDE = {
    "CONTRIBUTING.md": "project/contributing.md",
    "recsys_cli/README.md": "project/map.md",
    "CHANGELOG.md": "project/changes.md",
}
"""Page outside docs/ → its place in the site."""
ELSEWHERE = OUTSIDE | {"README.md": "index.md"}
LINK = re.compile(r"```.*?```|`[^`\n]*`|\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)", re.DOTALL)
SHIM = "https://unpkg.com/iframe-worker/shim"
"""Script of the theme's plugin `offline`."""
LAST = "Using it"
"""Section of the menu for pages of docs/ without a place in mkdocs.yml."""


def on_config(config: Any) -> None:
    """Add pages without a place in the menu."""
    listed = str(config.nav)
    section = next(part[LAST] for part in config.nav if LAST in part)
    folder = Path(config.docs_dir)
    paths = (str(path.relative_to(folder)) for path in sorted(folder.rglob("*.md")))
    section += [path for path in paths if f"'{path}'" not in listed]


def on_files(files: Any, config: Any) -> None:
    """Add the pages that are not in docs/."""
    written = pages() | {place: (ROOT / path).read_text() for path, place in OUTSIDE.items()}
    for place, text in written.items():
        files.append(File.generated(config, place, content=text))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fit links to the site, and drop the marks of the tests behind languages of code blocks."""
    place = page.file.src_uri
    source = next((path for path, of in OUTSIDE.items() if of == place), f"docs/{place}")
    markdown = LINK.sub(lambda found: _relinked(found, source, place), markdown)
    return re.sub(r"^( *```\w+) no-run$", r"\1", markdown, flags=re.MULTILINE)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Take our script for search without a server, in place of one of another host."""
    return output.replace(SHIM, relpath("worker.js", str(PurePosixPath(page.file.src_uri).parent)))


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page of unknown addresses."""
    return output_content.replace(SHIM, "worker.js")


def _relinked(found: re.Match[str], source: str, place: str) -> str:
    """Return a link to the page of a file, or the text of a link to a file without a page."""
    text, target, anchor = found.groups()
    if target is None or ":" in target:
        return found[0]
    path = normpath(str(PurePosixPath(source).parent / target))
    to = ELSEWHERE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    return f"[{text}]({relpath(to, str(PurePosixPath(place).parent))}{anchor or ''})" if to else text
