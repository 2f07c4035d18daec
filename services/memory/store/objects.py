"""Objects of files and of chunks of uploads (libs.objects)."""

from __future__ import annotations

from libs.objects import LooseObjects
from services.memory.store.tables import loose_blobs

LOOSE = LooseObjects(loose_blobs)

release = LOOSE.release
