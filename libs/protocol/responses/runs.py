"""Answers about runs."""

from ..base import Response
from ..runs import RunInfo, RunJournalEntryInfo


class GetRunResponse(Response, kw_only=True):
    """Answer to GetRun."""

    run: RunInfo


class ListRunsResponse(Response, kw_only=True):
    """Answer to ListRuns."""

    runs: list[RunInfo]


class CancelRunResponse(Response, kw_only=True):
    """Answer to CancelRun; not canceled when all runs were over."""

    run_id: str
    canceled: bool


class SignalRunResponse(Response, kw_only=True):
    """Answer to SignalRun."""

    run_id: str
    delivered: bool


class GetRunJournalResponse(Response, kw_only=True):
    """Answer to GetRunJournal."""

    run_id: str
    entries: list[RunJournalEntryInfo]
