"""Opening a page in a real browser, for tests that ask what a reader sees."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

_LOOK = """<script>
addEventListener("load", () => {
  const loaded = performance.getEntriesByType("resource").map(entry => entry.name);
  const root = document.documentElement;
  const ink = getComputedStyle(document.querySelector("svg text") || document.body).fill;
  const found = {loaded, overflow: root.scrollWidth - root.clientWidth, ink,
    headings: [...document.querySelectorAll("h2")].filter(h => h.offsetHeight > 0).map(h => h.textContent),
    charts: [...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().height > 50).length};
  document.body.dataset.found = JSON.stringify(found);
});
</script>"""


def see(page: str, tmp_path: Path, *, width: int, dark: bool = False) -> dict[str, Any]:
    """Open a page in a real browser and return what can be seen there."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on this machine (apt-get install chromium)")
    path = tmp_path / "page.html"
    path.write_text(page + _LOOK)
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--dump-dom",
        "--virtual-time-budget=2000",
    ]
    options += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1000"]
    options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    done = subprocess.run([chromium, *options, path.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found is not None, done.stderr[-2000:]
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    return seen
