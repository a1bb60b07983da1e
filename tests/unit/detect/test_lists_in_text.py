"""Lists in text columns have their separator, with the spaces around it; titles and names with commas stay whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recsys_cli.detect import understand
from recsys_cli.detect.understanding import Understanding

USERS, ITEMS, ROWS = 40, 300, 3_000
SUBJECTS = ("History", "Art", "Science Fiction", "Crime", "Cooking", "Kids", "Travel", "Poetry")


def understood(path: Path, *, of_items: dict[str, list[str]], of_rows: dict[str, list[str]]) -> Understanding:
    """Return what is understood of loans at random and the table of items, with further columns of text."""
    rng = np.random.default_rng(7)
    users, items = rng.integers(0, USERS, ROWS), rng.integers(0, ITEMS, ROWS)
    more = {name: [texts[item] for item in items] for name, texts in of_rows.items()}
    pl.DataFrame({"user": users, "item": items, "label": rng.integers(0, 2, ROWS), **more}).write_csv(
        path / "loans.csv"
    )
    pl.DataFrame({"item": range(ITEMS), **of_items}).write_csv(path / "items.csv")
    return understand([str(path / "loans.csv"), str(path / "items.csv")], {}, "label")


def subjects(separator: str) -> list[str]:
    """One to three subjects of each item, in any order."""
    rng = np.random.default_rng(8)
    return [separator.join(rng.choice(SUBJECTS, rng.integers(1, 4), replace=False)) for _ in range(ITEMS)]


def lists(found: Understanding, table: str) -> dict[str, str]:
    """Return the separators of the lists of a table in the config."""
    assert found.proposal is not None
    dataset = found.proposal.sections["dataset"]
    options = dataset["interactions"] if table == "loans" else dataset["tables"][table]
    return {} if isinstance(options, str) else dict(options.get("lists", {}))


@pytest.mark.parametrize("separator", ["|", ",", ";", "; ", ", ", "| ", " | "])
def test_lists_have_their_separator_with_its_spaces(tmp_path: Path, separator: str) -> None:
    found = understood(tmp_path, of_items={"subjects": subjects(separator)}, of_rows={"tags": subjects(separator)})
    assert lists(found, "items") == {"subjects": separator}
    assert lists(found, "loans") == {"tags": separator}
    assert found.joined[0].table.columns["subjects"].elements == len(SUBJECTS)


def test_numbered_tags_keep_no_comma(tmp_path: Path) -> None:
    codes = [f"t{item % 8}, t{item % 5}, t{item % 7}" for item in range(ITEMS)]
    assert lists(understood(tmp_path, of_items={"codes": codes}, of_rows={}), "items") == {"codes": ", "}


@pytest.mark.parametrize("separator", [", ", "; "])
def test_lists_of_few_combinations(tmp_path: Path, separator: str) -> None:
    few = [("Art", "Crime", f"Art{separator}Crime", f"Crime{separator}Art")[item % 4] for item in range(ITEMS)]
    assert lists(understood(tmp_path, of_items={"subjects": few}, of_rows={}), "items") == {"subjects": separator}


def titles() -> list[str]:
    """A title of its own for each item, of one to three parts between commas."""
    forms = ("Good {}, the Bad and the Ugly, The", "Matrix {}, The", "Alien {}", "Night {}, A")
    return [forms[item % 4].format(item) for item in range(ITEMS)]


def test_titles_with_commas_are_no_lists(tmp_path: Path) -> None:
    found = understood(tmp_path, of_items={"name": titles()}, of_rows={"title": titles()})
    assert lists(found, "items") == lists(found, "loans") == {}
    assert found.interactions.roles["title"].column == "title"  # each title is in about 10 rows


def test_authors_with_commas_are_no_lists(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    authors = [
        f"Smith{rng.integers(0, 90)}, J{rng.integers(0, 20)}" if item % 5 else f"Homer{item % 7}"
        for item in range(ITEMS)
    ]
    assert lists(understood(tmp_path, of_items={"author": authors}, of_rows={"by": authors}), "loans") == {}


def test_two_separators_in_a_column_are_a_note(tmp_path: Path) -> None:
    mixed = [f"{SUBJECTS[item % 8]}|{SUBJECTS[(item + 1) % 8]}" for item in range(ITEMS)]
    mixed[7] = "Art, Crime"
    found = understood(tmp_path, of_items={"subjects": mixed, "tags": subjects("|")}, of_rows={})
    assert [note for note in found.notes if "separator" in note] == [
        "subjects: 'Art, Crime' is a list of other values; write all lists of the column with one separator"
    ]
