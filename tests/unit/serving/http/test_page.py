"""The page in a real browser, by keyboard: users, histories, changes of the list, errors, and untrusted titles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import polars as pl
import pytest

import recsys_cli as recsys
from recsys_cli.stages.export import export
from tests.devtools import Tab, chromium
from tests.servers import running

pytest.importorskip("fastapi", reason="needs the extra serve")

HOSTILE = '<img src=x onerror="window.hacked = true">'
ITEMS = 30
READY = "document.querySelector('.column') && !document.querySelector('[aria-busy]')"
TITLES = "[...document.querySelectorAll('.column:first-of-type .title')].map(one => one.firstChild.textContent)"
HISTORY = "[...document.querySelectorAll('#history span')].map(one => one.textContent)"


def config_of(model: str, workspace: recsys.Workspace) -> recsys.RunConfig:
    """Two groups of users, each with half of the items; every user leaves out some."""
    rng = np.random.default_rng(0)
    pairs = [(user, item) for user in range(1, 61) for item in range(1, ITEMS + 1) if (user + item) % 2 == 0]
    kept = pl.DataFrame(pairs, schema=["userId", "movieId"], orient="row").filter(rng.random(len(pairs)) < 0.7)
    ratings = kept.with_columns(rating=pl.lit(5), timestamp=pl.int_range(pl.len()))
    movies = pl.DataFrame({
        "movieId": range(1, ITEMS + 1),
        "title": [HOSTILE if item == 7 else f"Movie {item:02}" for item in range(1, ITEMS + 1)],
        "genres": [["Comedy"] if item % 3 else ["Drama", "<b>War</b>"] for item in range(1, ITEMS + 1)],
    })  # fmt: skip
    columns = {"user": "userId", "item": "movieId", "rating": "rating", "timestamp": "timestamp"}
    values = recsys.config_from_frame(ratings, workspace, **columns, model=model).model_dump()
    values["dataset"] = recsys.dataset_from_frames(workspace, ratings, movies=movies)
    join = {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["genres"]}
    ids = {"op": "Categorify", "columns": ["userId", "movieId", "genres"]}
    values["features"]["ops"] = [join, ids, *values["features"]["ops"][1:]]
    return recsys.load_config(values)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("page")
    workspace = recsys.Workspace(str(folder / "workspace"))
    for model in ("ease", "item-knn"):
        config = config_of(model, workspace)
        recsys.etl(config, workspace, progress=False)
        run = recsys.train(config, workspace, progress=False)
        export(run, workspace, out=folder / model, verify=False)
    return [str(folder / model) for model in ("ease", "item-knn")]


@pytest.fixture(scope="module")
def url(bundles: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("server"), *bundles) as server:
        yield server.url


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture
def page(browser: Tab, url: str) -> Iterator[Tab]:
    """The open page; in the end no request has left the host, and nothing has failed unexpectedly."""
    browser.look(width=1200)
    browser.requests.clear()
    browser.complaints.clear()
    browser.open("about:blank")
    browser.open(url)
    browser.wait(READY)
    yield browser
    hosts = {urlsplit(one).netloc for one in browser.requests} - {""}
    assert hosts == {urlsplit(url).netloc}
    assert browser.complaints == []
    assert browser.value("window.hacked") is None


def tab_to(page: Tab, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(60):
        if page.value(f"document.activeElement.matches({selector!r})"):
            return
        page.press("Tab")
    raise AssertionError(f"Tab does not reach {selector}")


def add(page: Tab, text: str) -> None:
    """Add the first item of a search to the history."""
    number = len(page.value(HISTORY))
    tab_to(page, "#search")
    page.type(text)
    page.wait("document.querySelector('[role=option][aria-selected=true]')")
    page.press("Enter")
    page.wait(f"{HISTORY}.length === {number + 1} && {READY}")


def test_a_history_by_search_and_likes_changes_the_list_at_once(page: Tab) -> None:
    assert (
        page.value("document.querySelector('.note').textContent")
        == "This user has no history: add titles that the user likes."
    )
    tab_to(page, "#search")
    page.type("movie 0")
    page.wait("document.querySelectorAll('[role=option]').length > 2")
    page.press("ArrowDown", "ArrowDown", "ArrowUp")
    assert page.value("document.querySelector('[aria-selected=true]').id") == "option-1"
    assert page.value("document.activeElement.getAttribute('aria-activedescendant')") == "option-1"
    chosen = page.value("document.querySelector('[aria-selected=true]').firstChild.textContent")
    page.press("Enter")
    page.wait(f"{HISTORY}.length === 1 && {READY}")
    assert page.value(HISTORY) == [chosen]
    assert page.value("document.querySelector('.column').dataset.source") == "fold-in"
    assert chosen in page.value("document.querySelector('.because').textContent")

    before = page.value(TITLES)
    tab_to(page, ".entry .like")
    page.press("Enter")
    page.wait(f"{HISTORY}.length === 2 && {READY}")
    after = page.value(TITLES)
    assert page.value(HISTORY) == [before[0], chosen]
    assert before[0] not in after
    assert page.value("document.activeElement.matches('.entry .like')"), "the focus stays in the list"
    new = page.value("[...document.querySelectorAll('.entry.new .title')].map(one => one.firstChild.textContent)")
    assert set(new) == set(after) - set(before)
    assert new
    assert f"{len(new)} new" in page.value("document.querySelector('#status').textContent")

    page.value("document.querySelector('#history button').focus()")
    page.press("Enter")
    page.wait(f"{HISTORY}.length === 1 && {READY}")
    assert page.value(TITLES) == before


def test_escape_closes_the_search_and_a_search_without_result_says_so(page: Tab) -> None:
    tab_to(page, "#search")
    page.type("movie")
    page.wait("document.querySelector('[role=option]')")
    page.press("Escape")
    assert page.value("document.querySelector('#found').hidden")
    assert page.value("document.activeElement.getAttribute('aria-expanded')") == "false"
    page.type(" nowhere")
    page.wait("document.querySelector('.nothing')")
    assert "movie nowhere" in page.value("document.querySelector('.nothing').textContent")


def test_a_hostile_title_stays_text(page: Tab) -> None:
    add(page, "<img")
    assert page.value(HISTORY) == [HOSTILE]
    assert HOSTILE in page.value("document.querySelector('.because').textContent")
    assert "<b>War</b>" in page.value("document.querySelector('.entries').textContent")
    assert page.value("document.querySelectorAll('img, .entries b').length") == 0


def test_feedback_of_a_known_user_is_kept_by_the_server(page: Tab) -> None:
    tab_to(page, "input[name=mode]")
    page.press("ArrowRight")
    page.wait("document.querySelector('#examples button')")
    assert "Enter a user id" in page.value("document.querySelector('.message').textContent")
    tab_to(page, "#examples button")
    page.press("Enter")
    page.wait(f"{HISTORY}.length && {READY}")
    stored, before = page.value(HISTORY), page.value(TITLES)
    tab_to(page, ".entry .like")
    page.press("Enter")
    page.wait(f"{HISTORY}[0] !== {stored[0]!r} && {READY}")
    assert page.value(HISTORY)[0] == before[0]
    assert before[0] not in page.value(TITLES)

    page.call("Page.reload")
    page.wait(f"{HISTORY}.length && {READY}")
    assert page.value(HISTORY)[0] == before[0], "the address has the user, and the server the feedback"
    tab_to(page, "#history button")
    page.press("Enter")
    page.wait(f"{HISTORY}[0] === {stored[0]!r} && {READY}")
    assert page.value(TITLES) == before


def test_a_like_is_taken_back_where_it_was_given(page: Tab) -> None:
    page.value("document.querySelector('input[value=user]').click()")
    tab_to(page, "#user")
    page.type("3")
    page.press("Enter")
    page.wait(f"{HISTORY}.length && {READY}")
    stored, pressed = page.value(HISTORY), "document.querySelectorAll('.entry .like[aria-pressed=true]').length"
    page.value("document.querySelector('#exclude-seen').click()")
    page.wait(f"{READY} && {pressed} === 0")
    tab_to(page, ".entry .like")
    page.press("Enter")
    page.wait(f"{READY} && {pressed} === 1")
    page.value("document.querySelector('.entry .like[aria-pressed=true]').focus()")
    page.press("Enter")
    page.wait(f"{READY} && {pressed} === 0")
    assert page.value(HISTORY) == stored


def test_two_bundles_answer_beside_each_other(page: Tab) -> None:
    add(page, "movie 05")
    page.value("document.querySelector('#second').focus()")
    page.press("ArrowDown", "ArrowDown")
    page.wait(f"document.querySelectorAll('.column').length === 2 && {READY}")
    assert page.value("[...document.querySelectorAll('.column h2')].map(one => one.textContent)") == [
        "ease",
        "item-knn",
    ]
    assert page.value("document.querySelectorAll('.column:last-of-type .entry').length") > 0


def test_similar_items_open_below_an_item(page: Tab) -> None:
    tab_to(page, ".entry [aria-expanded]")
    page.press("Enter")
    page.wait("document.querySelector('.similar li')")
    assert page.value("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.press("Enter")
    assert page.value("document.querySelector('.similar').hidden")


def filtered(page: Tab, text: str) -> None:
    page.value(f"document.querySelector('.options').open = true; document.querySelector('#where').value = {text!r}")
    page.value("document.querySelector('#where').focus()")
    page.press("Enter")
    page.wait(f"!document.querySelector('.entries') && {READY}")


def test_filters_that_leave_nothing_or_do_not_parse_say_so(page: Tab) -> None:
    filtered(page, "genres contains Opera")
    assert page.value("document.querySelector('.note').textContent").endswith("no item passes the filters.")
    filtered(page, "genres contains")
    page.wait("document.querySelector('[role=alert]')")
    assert "genres contains" in page.value("document.querySelector('[role=alert]').textContent")
    assert "status of 422" in page.complaints.pop()


def test_an_unknown_user_gets_the_fallback_in_words(page: Tab) -> None:
    page.value("document.querySelector('input[value=user]').click()")
    tab_to(page, "#user")
    page.type("nobody")
    page.press("Enter")
    page.wait(f"document.querySelector('.note') && {READY}")
    assert "User nobody has no" in page.value("document.querySelector('.note').textContent")
    assert page.value("document.querySelector('.column').dataset.source") == "popularity"
    assert page.value("document.querySelector('#history-empty').textContent") == "No stored history."


def test_a_server_that_does_not_answer_is_named_and_asked_again(page: Tab) -> None:
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.call("Network.emulateNetworkConditions", offline=True, **network)
    tab_to(page, ".entry .like")
    page.press("Enter")
    page.wait("document.querySelector('[role=alert]')")
    assert "does not answer" in page.value("document.querySelector('[role=alert]').textContent")
    page.call("Network.emulateNetworkConditions", offline=False, **network)
    page.value("document.querySelector('.message button').focus()")
    page.press("Enter")
    page.wait(f"document.querySelector('.entries') && {READY}")
    assert "ERR_INTERNET_DISCONNECTED" in page.complaints.pop()


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_all_widths_and_follows_the_color_scheme(page: Tab, dark: bool) -> None:
    add(page, "<img")
    page.value("document.querySelector('#second').selectedIndex = 2")
    page.value("document.querySelector('#second').dispatchEvent(new Event('change'))")
    page.wait(f"document.querySelectorAll('.column .entries').length === 2 && {READY}")
    tops = "['.who', '.results'].map(name => document.querySelector(name).getBoundingClientRect().top)"
    for width in (320, 690, 720, 1400):
        page.look(width=width, dark=dark)
        assert page.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), width
        who, results = page.value(tops)
        assert (results > who) == (width < 700)
    paper = page.value("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 23, 27)" if dark else "rgb(251, 251, 250)")


def test_the_policy_allows_this_server_only(url: str) -> None:
    answer = httpx.get(url)
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "<script>" not in answer.text
    assert "style=" not in answer.text


def test_a_server_with_a_token_gets_it_from_the_reader(browser: Tab, bundles: list[str], tmp_path: Path) -> None:
    with running(tmp_path, bundles[0], env={"RECSYS_TOKEN": "a-long-and-secret-token"}) as server:
        browser.look(width=1200)
        browser.open(server.url)
        browser.wait("document.activeElement.id === 'token'")
        browser.type("a-long-and-secret-token")
        browser.press("Enter")
        browser.wait(f"document.querySelector('.entries') && {READY}")
