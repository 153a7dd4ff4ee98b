"""Triggers that keep the slim rows of lists beside `jobs_run`, whoever writes it and how.

They copy what says where a run stands, and mark the rest as out of date; `jobs.runs.find.index` writes it anew. On
SQLite a migration that alters `jobs_run` makes the table anew, without triggers: so `keep` runs after every `migrate`.
"""

from django.db.backends.base.base import BaseDatabaseWrapper

_ADD = (
    "INSERT INTO jobs_runline (run_id, project_id, shelf, state, author_id, stale, text) SELECT r.id, r.project_id, "
    "CASE WHEN r.trashed_at IS NOT NULL THEN 2 WHEN r.archived_at IS NOT NULL THEN 1 ELSE 0 END, "
    "r.state, r.created_by_id, 2, '' "
    "FROM jobs_run r LEFT JOIN jobs_runline l ON l.run_id = r.id WHERE l.id IS NULL"
)
_COPY = (
    "UPDATE jobs_runline SET state = NEW.state, author_id = NEW.created_by_id, stale = 2, "
    "shelf = CASE WHEN NEW.trashed_at IS NOT NULL THEN 2 WHEN NEW.archived_at IS NOT NULL THEN 1 ELSE 0 END "
    "WHERE run_id = NEW.id"
)
_MARK = "UPDATE jobs_runline SET stale = 1 WHERE run_id = NEW.id AND stale = 0"
_SEEN = (
    *("name", "note", "tags", "spec", "state", "study_id", "created_by_id"),
    *("started_at", "ended_at", "archived_at", "trashed_at"),
)
_TRIGGERS = {
    "run_line_made": ("INSERT", " ".join((_ADD, "AND r.id = NEW.id"))),
    "run_line_changed": (f"UPDATE OF {', '.join(_SEEN)}", _COPY),
    "run_line_went_on": ("UPDATE OF step, latest_values", _MARK),
}


def keep(connection: BaseDatabaseWrapper) -> int:
    """Put the triggers that are missing on `jobs_run`, add rows of runs that have none, and return how many."""
    is_postgres = connection.vendor == "postgresql"
    held = "SELECT tgname FROM pg_trigger" if is_postgres else "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    with connection.cursor() as cursor:
        cursor.execute(held)
        there = {name for (name,) in cursor.fetchall()}
        for name, (event, action) in _TRIGGERS.items():
            if name in there:
                continue
            if is_postgres:
                body = f"BEGIN {action}; RETURN NULL; END"
                cursor.execute(f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
                action = f"FOR EACH ROW EXECUTE FUNCTION {name}()"
            else:
                action = f"BEGIN {action}; END"
            cursor.execute(f"CREATE TRIGGER {name} AFTER {event} ON jobs_run {action}")
        cursor.execute(" ".join((_ADD, "ORDER BY r.created_at, r.id")))
        return max(cursor.rowcount, 0)
