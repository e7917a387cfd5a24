"""What an archive file is, how new it is, and the migrations that bring an older one up to date.

An archive says what it is by `PRAGMA application_id` and how new it is by `PRAGMA user_version` (the number
of migrations applied). Migrations are only ever appended: one file each in `migrations/`, one line here.
"""

from __future__ import annotations

from sqlite_utils import Migrations

from evo.archive.migrations.m001_tables import m001_tables
from evo.archive.migrations.m002_sources import m002_sources
from evo.archive.migrations.m003_views import m003_views
from evo.archive.migrations.m004_costs import m004_costs

APPLICATION_ID = 0x45564F41  # "EVOA"

_ALL = (
    m001_tables,
    m002_sources,
    m003_views,
    m004_costs,
)

migrations = Migrations("evo")
for _migration in _ALL:
    migrations()(_migration)

VERSION = len(_ALL)
"""Number of migrations; what `PRAGMA user_version` of an up-to-date archive says."""

LATEST_FIRST = "r.started_at desc, r.rowid desc"
"""Order of runs r, the latest first: by when they were started, since merging inserts older ones after newer ones."""
