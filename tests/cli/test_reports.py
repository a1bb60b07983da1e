"""`recsys report` finds a report and prints its path, or a hint."""

import sys
import webbrowser
from pathlib import Path

import pytest

from recsys_cli.cli.report import open_page


@pytest.fixture
def data(prepared):
    """The folder of the prepared data."""
    return next(Path("workspace/data").iterdir())


def test_etl_shows_findings_and_path_of_the_report(recsys, labelled):
    answer = recsys("etl", "ratings.yaml")
    found = recsys("etl", "ratings.yaml", "--json").json
    assert Path(found["report"]).is_file()
    assert f"report: {found['report']}" in answer.out
    warnings = [finding["text"] for finding in found["findings"] if finding["level"] == "warning"]
    assert warnings
    assert all(f"warning: {text}" in answer.out for text in warnings)


def test_report_of_data_by_config_key_folder_and_as_the_current_one(recsys, data):
    page = data / "report.html"
    for given in ((), ("ratings.yaml",), (data.name,), (data.name[:6],), (str(data),)):
        answer = recsys("report", *given)
        assert (answer.code, answer.out) == (0, f"{page.resolve()}\n")


def test_report_as_json_has_the_facts(recsys, data):
    found = recsys("report", "--json").json
    assert found["data"] == data.name
    assert sum(split["rows"] for split in found["facts"]["splits"].values()) == 600


def test_report_of_an_unprepared_config_has_a_hint(recsys, labelled):
    answer = recsys("report", "ratings.yaml")
    assert answer.code == 3
    assert "is not prepared" in answer.err
    assert "hint: recsys etl" in answer.err


def test_report_of_prepared_data_without_report_has_a_hint(recsys, data):
    (data / "report.html").unlink()
    answer = recsys("report", "ratings.yaml")
    assert answer.code == 3
    assert "has no report" in answer.err
    hint = answer.err.partition("hint: recsys ")[2].split()
    assert recsys("-q", *hint).code == 0
    assert recsys("report", "ratings.yaml").code == 0


def test_ambiguous_name_lists_all_matches(recsys, data):
    recsys("-q", "etl", "ratings.yaml", "split.valid=0.3")
    names = sorted(path.name for path in data.parent.iterdir())
    assert len(names) == 2
    answer = recsys("report", "")
    assert answer.code == 3
    assert f"2 runs or prepared data match '' in workspace; there are: {', '.join(names)}" in answer.err


def test_report_opens_a_browser_only_before_a_screen(monkeypatch, tmp_path):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(sys, "platform", "linux")
    for terminal, display in ((True, False), (False, True), (True, True)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal, raising=False)
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        monkeypatch.setenv("DISPLAY", ":0") if display else monkeypatch.delenv("DISPLAY", raising=False)
        open_page(str(tmp_path / "report.html"))
    assert opened == [(tmp_path / "report.html").as_uri()]
