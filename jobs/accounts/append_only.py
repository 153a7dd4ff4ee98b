"""Keep the audit table append-only, in the database itself: triggers refuse to change or delete its rows.

A row may go only while a row of `AuditSweep` says that all before a moment may: the sweep of what is too old adds one,
deletes, and takes it back, in one transaction (jobs.accounts.audit.sweep). This stops faults and whoever gets at the
console's own queries. It does not stop who owns the database: they can drop triggers.

On SQLite a migration that alters the table makes it anew, without triggers: let it run `guard` again at its end.
"""

from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_SQLITE = (
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON jobs_auditevent "
    "BEGIN SELECT RAISE(ABORT, 'rows of the audit are never changed'); END",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON jobs_auditevent "
    "WHEN NOT EXISTS (SELECT 1 FROM jobs_auditsweep WHERE OLD.at < before) "
    "BEGIN SELECT RAISE(ABORT, 'rows of the audit are deleted by its sweep alone'); END",
    # INSERT OR REPLACE deletes the row that stands there without a word to the trigger above.
    "CREATE TRIGGER audit_no_replace BEFORE INSERT ON jobs_auditevent "
    "WHEN EXISTS (SELECT 1 FROM jobs_auditevent WHERE id = NEW.id) "
    "BEGIN SELECT RAISE(ABORT, 'rows of the audit are never changed'); END",
)
_POSTGRESQL = (
    """CREATE OR REPLACE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            IF EXISTS (SELECT 1 FROM jobs_auditsweep WHERE OLD.at < before) THEN RETURN OLD; END IF;
        END IF;
        RAISE EXCEPTION 'rows of the audit are never changed, and deleted by its sweep alone'
            USING ERRCODE = 'integrity_constraint_violation';
    END $$""",
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON jobs_auditevent FOR EACH ROW EXECUTE FUNCTION audit_refuse()",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON jobs_auditevent FOR EACH ROW EXECUTE FUNCTION audit_refuse()",
    "CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON jobs_auditevent "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse()",
)


def guard_sql(vendor: str) -> tuple[str, ...]:
    """Return the statements that put the triggers on the table."""
    return _POSTGRESQL if vendor == "postgresql" else _SQLITE


def unguard_sql(vendor: str) -> tuple[str, ...]:
    """Return the statements that take the triggers off again: for a migration that alters the table."""
    on = " ON jobs_auditevent" if vendor == "postgresql" else ""
    names = ("update", "delete", "truncate") if vendor == "postgresql" else ("update", "delete", "replace")
    return tuple(f"DROP TRIGGER IF EXISTS audit_no_{name}{on}" for name in names)


def guard(_apps: object, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Put the triggers on the table, in a migration."""
    for sql in (*unguard_sql(schema_editor.connection.vendor), *guard_sql(schema_editor.connection.vendor)):
        schema_editor.execute(sql)


def unguard(_apps: object, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Take the triggers off, in a migration."""
    for sql in unguard_sql(schema_editor.connection.vendor):
        schema_editor.execute(sql)
