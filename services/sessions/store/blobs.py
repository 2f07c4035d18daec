"""Objects of attachments and of chunks of uploads (libs.objects)."""

from __future__ import annotations

from collections.abc import Callable

from libs.blobs import Blobs
from libs.objects import LooseObjects, Objects, Written
from libs.store import Database
from services.sessions.store.tables import loose_blobs

__all__ = ["BlobStore", "Written", "release"]

_loose = LooseObjects(loose_blobs)

release = _loose.release


class BlobStore(Objects):
    """The objects of sessions. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, blobs: Blobs, *, now: Callable[[], int]) -> None:
        super().__init__(db, blobs, _loose, "sessions", now=now)
