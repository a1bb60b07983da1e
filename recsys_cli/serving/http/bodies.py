"""Bodies of requests and answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from recsys_cli.serving.feedback.state import LATEST
from recsys_cli.serving.http.settings import Limits

_Number = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
_Text = Annotated[str, StringConstraints(max_length=1_000)]
_Whole = Annotated[float, Field(gt=-(2**53), lt=2**53)]
Id = _Number | _Text | _Whole
"""A raw id, in any spelling of the type of its column, such as "042" or 42.0 for 42."""
Value = (
    bool | Annotated[int, Field(ge=-(2**63), le=2**64 - 1)] | Annotated[float, Field(allow_inf_nan=False)] | str | None
)
"""A raw value of a column."""
_T = TypeVar("_T")
_List = Annotated[list[_T], Field(fail_fast=True)]
"""A list with one problem at most: that of its first invalid element."""
_Cells = Annotated[dict[str, _T], Field(fail_fast=True, max_length=1_000)]
Cell = Value | _List[Value]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class RecommendBody(_Body, json_schema_extra={"example": {"user": 42, "k": 5, "where": "year > 1990"}}):
    """A request for the top-k items of a user."""

    user: Id | None = None
    """Raw user id; null for an anonymous user."""
    history: Annotated[_List[Id], Field(max_length=Limits.history)] | None = None
    """Raw item ids, oldest first, in place of the stored history and the feedback."""
    features: _Cells[Cell] = Field(default_factory=dict)
    """Raw values of user and context features."""
    k: int = Field(10, ge=1)
    """Number of items."""
    candidates: Annotated[_List[Id], Field(max_length=Limits.history)] | None = None
    """The only items to rank."""
    exclude: _List[Id] = Field(default_factory=list, max_length=Limits.history)
    """Items to leave out."""
    exclude_seen: bool | None = None
    """Leave out the items of the history; null for what the model was evaluated on."""
    where: str | None = Field(None, max_length=1_000)
    """Filter over item features, such as `genres contains Comedy and year > 1990`."""
    diversity: float = Field(0.0, ge=0, le=1)
    """Weight of diversity in a reranking."""
    explain: bool = False
    """Add reasons, and the features of the items."""
    bundle: str | None = None
    """Bundle of the answer; null for the one of the user's share."""


class BatchBody(_Body, json_schema_extra={"example": {"requests": [{"user": 42}, {"history": [7, 9]}]}}):
    """Several requests."""

    requests: _List[RecommendBody] = Field(min_length=1, max_length=Limits.batch)


class ScoreBody(_Body, json_schema_extra={"example": {"rows": [{"userId": 42, "movieId": 7}]}}):
    """Raw rows to score, as columns or as rows."""

    columns: _Cells[Annotated[_List[Cell], Field(max_length=Limits.batch)]] | None = None
    """Columns of equal length."""
    rows: Annotated[_List[_Cells[Cell]], Field(min_length=1, max_length=Limits.batch)] | None = None
    """Rows with the same keys."""
    bundle: str | None = None
    """Bundle of the scores; null for the first one."""


def _seconds(time: Any) -> Any:
    if isinstance(time, int | float) and time > LATEST:
        raise PydanticCustomError("seconds", f"{time} is too large: the unit is seconds since 1970")
    return time


class FeedbackEvent(_Body):
    """An interaction."""

    user: Id
    item: Id
    label: float | None = None
    """Value of the label: of a binary one, positive if above 0; null for a like, which is positive."""
    time: Annotated[float | None, BeforeValidator(_seconds)] = Field(None, ge=0, le=LATEST)
    """Seconds since 1970; null for now."""
    event: Annotated[str, StringConstraints(min_length=1, max_length=1_000)] | None = None
    """Kind of the interaction, such as purchase: each time of each kind counts. Null for the only feedback of the pair."""


_LIKES = [{"user": 42, "item": 7}, {"user": 42, "item": 9, "label": 4, "time": 1_700_000_000}]
_CHANGE = {"title": "Brand New", "features": {"genres": ["Drama", "War"]}}


class FeedbackBody(_Body, json_schema_extra={"example": {"events": _LIKES}}):
    """Interactions to insert or overwrite."""

    events: _List[FeedbackEvent] = Field(min_length=1, max_length=Limits.batch)


class ItemBody(_Body, json_schema_extra={"example": _CHANGE}):
    """A change of an item: its visibility, or its features."""

    hidden: bool | None = None
    """Whether the item is left out of all answers; null for no change."""
    features: _Cells[Cell] | None = None
    """Raw values of all columns of the joined item table, null for an unknown one; `GET /bundles` lists the columns."""
    title: _Text | None = None
    """Title, with `features`; null for the present one."""

    @model_validator(mode="after")
    def _changes(self) -> Self:
        if self.hidden is None and self.features is None:
            raise PydanticCustomError("change", "give hidden, or features with the raw values of the item")
        return self


class ItemEntry(ItemBody, json_schema_extra={"example": {"item": 9000, **_CHANGE}}):
    """An item with a change."""

    item: Id


class ItemsBody(
    _Body, json_schema_extra={"example": {"items": [{"item": 9000, **_CHANGE}, {"item": 7, "hidden": True}]}}
):
    """Changes of several items."""

    items: _List[ItemEntry] = Field(min_length=1, max_length=Limits.batch)


class Item(BaseModel):
    """An item of the catalog."""

    item: Any
    title: str | None = None
    features: dict[str, list[str]] | None = None
    hidden: bool | None = None


class Recommended(Item):
    """A recommended item."""

    score: float
    because: list[str] | None = None


class Recommendations(BaseModel):
    """Recommended items, best first."""

    bundle: str
    version: str
    """Key of the bundle."""
    number: int | None
    """Number of its version; null outside a folder of versions."""
    source: Literal["model", "fold-in", "popularity", "none"]
    """Origin of the scores."""
    fallback: Literal["popularity"] | None
    """The fallback; null for scores of the model, and for an empty list."""
    note: str | None
    """Reason for a fallback or an empty list."""
    num_seen: int
    """Number of seen items left out."""
    items: list[Recommended]


class Answers(BaseModel):
    """Answers of a batch, in order."""

    answers: list[Recommendations]


class Scores(BaseModel):
    """Scores of rows, in order."""

    bundle: str
    version: str
    number: int | None
    scores: list[float]


class FeedbackAnswer(BaseModel):
    """Acknowledged feedback."""

    written: int
    """Number of written events."""
    unchanged: int
    """Number of events that are in the feedback, which an insert leaves as they are, and of deletions without any."""
    unknown_items: int
    """Number of distinct items of the request that are in the catalog of no bundle."""
    fsync: Literal["always", "interval", "never"]


class ItemAnswer(FeedbackAnswer):
    """Acknowledged changes of items."""

    bundles: list[str]
    """Bundles with the new features; empty without features in the request."""


class Found(BaseModel):
    """Items of a search."""

    bundle: str
    items: list[Item]


class Users(BaseModel):
    """Users of a bundle."""

    bundle: str
    users: list[Any]


class Interacted(BaseModel):
    """An item of a history."""

    item: Any
    title: str | None
    label: float | None
    feedback: bool
    """Whether it is feedback after the training."""


class UserAnswer(BaseModel):
    """A user with the latest interactions, newest first."""

    user: Any
    bundle: str
    known: bool
    """Whether the user is in the training data."""
    num_interactions: int
    history: list[Interacted]


class Upsertable(BaseModel):
    """Upserts of items in a bundle."""

    possible: bool
    reason: str | None
    """Reason against upserts."""
    columns: dict[str, str]
    """Arrow types of the raw columns by name."""


class Deployed(BaseModel):
    """A bundle of the server."""

    name: str
    version: str
    number: int | None
    """Number of the version in a folder of versions."""
    model: str
    share: float
    repeats: bool
    """Whether seen items are recommended unless a request says otherwise."""
    num_users: int
    """Users of train."""
    num_items: int
    """Items of train."""
    dataset: str | None
    metrics: dict[str, float]
    upsert: Upsertable


class Bundles(BaseModel):
    """All bundles."""

    bundles: list[Deployed]


class ProblemAnswer(BaseModel):
    """A request without a result."""

    error: str
    hint: str
