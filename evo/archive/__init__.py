"""The archive: all SQL of the project (the only package that imports sqlite_utils)."""

from evo.archive.records import Entry, Event, Refused, RunRecord
from evo.archive.store import Archive, now

__all__ = ["Archive", "Entry", "Event", "Refused", "RunRecord", "now"]
