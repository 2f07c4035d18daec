"""Objects of the object store and who owns them, so that none is forgotten and none is deleted while it is owned.

A key stands in a table of loose objects before its object is written. The transaction that gives the object an owner
takes it out again, the one that deletes the owner puts it back, a sweep deletes what has been loose for long enough.
"""

from libs.objects.loose import LooseObjects, loose_objects_table
from libs.objects.objects import Objects, Written

__all__ = ["LooseObjects", "Objects", "Written", "loose_objects_table"]
