"""The site of `make docs` has an entry for every command, option and name of the code, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

from recsys_cli import registry
from recsys_cli.cli import options
from tests.devtools import chromium
from tests.e2e import test_docs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with `--strict`: a broken link or anchor is an error."""
    if find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed (pip install 'recsys-cli[docs]')")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def headings(page: Path) -> set[str]:
    return set(re.findall(r'<h2 id="([^"]+)"', page.read_text()))


def terms(page: Path) -> set[str]:
    return set(re.findall(r'<code id="([^"]+)"', page.read_text()))


def test_every_command_and_option_has_an_entry(site: Path) -> None:
    page = site / "reference" / "commands.html"
    surface = (ROOT / "tests" / "golden" / "cli_surface.txt").read_text().splitlines()[1:]
    assert {line.split()[1] for line in surface} <= headings(page)
    text = page.read_text()
    assert [flag for line in surface for flag in test_docs.options(line) if flag not in text] == []


def test_every_name_has_an_entry(site: Path) -> None:
    known = {
        "ops": options.ops(),
        "models": registry.MODELS,
        "datasets": registry.DATASETS,
        "splits": options.splits(),
        "schedules": options.schedules(),
        "sections": options.sections(),
        "engines": registry.ENGINES,
    }
    assert {kind: set(names) - headings(site / "reference" / f"{kind}.html") for kind, names in known.items()} == {
        kind: set() for kind in known
    }
    assert {"auc", "gauc", "ndcg-k", "serendipity-k"} <= headings(site / "reference" / "metrics.html")


def test_every_key_of_a_config_has_an_entry(site: Path) -> None:
    found = terms(site / "reference" / "sections.html")
    assert {f"{section}.{key}" for section, kind in options.sections().items() for key in kind.model_fields} <= found
    assert {"ease.regularization", "Categorify.columns"} <= terms(site / "reference" / "models.html") | terms(
        site / "reference" / "ops.html"
    )


def test_the_reference_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    from scripts.site.reference import pages

    found = pages()
    assert {"reference/commands.md", "reference/configs.md", "reference/models.md"} <= found.keys()
    for name, text in found.items():
        page = tmp_path / Path(name).name
        page.write_text(text)
        test_docs.test_every_block_has_a_language(page)
        test_docs.test_every_command_and_option_exists(page)


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    loaded = re.compile(
        r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="((?:https?:)?//[^"]*)"|url\(["\']?((?:https?:)?//[^)]*)\)'
    )
    assert len(pages) > 30
    assert [
        (page.name, *found) for page in [*pages, *site.rglob("*.css")] for found in loaded.findall(page.read_text())
    ] == []


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """A server of the site."""

    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_pages_fit_the_window_and_ask_no_other_host(site: Path, address: str, tmp_path: Path) -> None:
    with chromium(tmp_path) as tab:
        for name in ("index.html", "howto/own-data.html", "reference/commands.html", "reference/models.html"):
            for width in (1280, 400):
                tab.look(width=width, dark=width == 400)
                tab.open(f"{address}/{name}")
                assert tab.value("document.documentElement.scrollWidth <= innerWidth"), (name, width)
        tab.look(width=1280)
        for page in (
            f"{address}/index.html",
            (site / "howto" / "own-data.html").as_uri(),
        ):  # with a server, and without
            tab.open(page)
            tab.wait("document.querySelector('.md-search__input')")
            tab.value("document.querySelector('.md-search__input').focus()")
            tab.wait("document.querySelector('.md-search-result__meta').textContent.includes('Type to start')")
            tab.type("regularization")
            tab.press("ArrowRight")  # the page reads the field at the end of a keystroke
            tab.wait("document.querySelector('.md-search-result__item')")
        local = (address, site.as_uri(), "data:", "blob:", "about:")
        assert {url for url in tab.requests if not url.startswith(local)} == set()
        assert tab.complaints == []
