"""Where SQLite and PostgreSQL differ, on a real PostgreSQL: the same tests once more.

What is only stored and found again by its key needs no second database.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.services import Postgres

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 900
SAME = (
    # Locks, advisory ones too, and who waits for whom.
    "jobs/telemetry/test_lock",
    "jobs/test_at_once",
    "jobs/runs/test_lifecycle::test_a_change_between_reading_and_writing_is_seen_and_judged_again",
    "jobs/runs/test_lifecycle::test_a_stop_that_loses_a_race_to_the_start_still_stops_the_run",
    "jobs/runs/test_lifecycle::test_a_late_proof_of_cleanup_is_kept_once",
    "jobs/runs/test_admission::test_admission_takes_runs_in_the_order_they_came_and_writes_why_others_wait",
    # Triggers.
    "jobs/accounts/test_audit",
    # Constraints, and rows that are written many at a time, or put in place of others.
    "jobs/ingest/test_process",
    "jobs/test_ingest_process::test_killed_in_the_middle_it_stores_every_batch_once",
    "jobs/ingest/test_compaction::test_every_10000_points_are_rolled_up_and_every_million_again",
    "jobs/ingest/test_compaction::test_dying_while_compaction_leaves_everything_as_it_was",
    "jobs/ingest/test_compaction::test_the_oldest_log_lines_go_first",
    "jobs/telemetry/test_statistics::test_a_resumed_runs_statistics_are_those_of_its_clean_history",
    "jobs/telemetry/test_statistics::test_the_newest_point_before_a_step_is_found_across_a_gap",
    "jobs/comparison/test_chart_columns::test_the_spikes_of_fifty_runs_are_there_and_take_no_more_statements",
    "jobs/captures/test_state::test_a_capture_is_ready_when_its_last_file_has_arrived",
    "jobs/captures/test_state::test_what_comes_twice_or_late_changes_nothing",
    "jobs/captures/test_state::test_a_new_request_for_the_same_steps_is_not_the_withdrawn_one",
    "jobs/runs/test_launch::test_a_repeated_request_gives_the_first_run",
    "jobs/runs/test_launch::test_a_request_that_loses_the_race_gets_the_winner",
    "jobs/runs/test_launch::test_a_spec_with_problems_leaves_nothing_behind",
    "jobs/sweeps/test_sweeps::test_a_failure_half_way_leaves_nothing",
    "jobs/sweeps/test_sweeps::test_a_double_click_makes_one_sweep",
    "jobs/sweeps/test_sweeps::test_stop_all_cancels_the_queue_and_stops_what_runs",
    "console/api/test_ingest_api::test_a_batch_is_taken_once_and_becomes_durable",
    "console/api/test_ingest_api::test_commands_are_repeated_until_they_are_answered",
    "console/api/test_ingest_api::test_contact_is_noted_at_most_once_a_second",
    "console/api/test_ingest_api::test_what_the_model_said_is_kept_also_after_the_run_ended",
    "console/api/test_ingest_api::test_without_the_database_the_runner_is_told_to_come_back",
    # JSON, aggregates, and text that is matched whatever its case.
    "jobs/runs/test_queries",
    "jobs/runs/find/test_search",
    "jobs/telemetry/test_logs",
    # Text that only one of the two takes, and that reaches it; other is refused before either.
    "console/hostile/test_input::test_half_a_surrogate_pair_in_an_answer_is_replaced",
)
MORE = (
    # Rows of many kinds at once, and what is asked of them.
    "jobs/test_reconcile_answers",
    "jobs/runs/test_merges",
    "jobs/storage/test_usage",
    "jobs/accounts/test_people::test_a_shut_account_lets_nobody_in_and_its_runs_go_on",
    "jobs/accounts/test_people::test_the_last_superuser_and_the_last_admin_cannot_go",
    "jobs/runs/test_prompt_model",
    "jobs/ingest/test_compaction::test_frames_that_are_not_compacted_are_never_forgotten",
    "jobs/telemetry/test_samples",
    "jobs/retention/test_deletion",
    "jobs/retention/test_retention::test_what_is_said_is_what_goes_and_comes_back_or_not",
    "console/hostile/test_input::test_a_terminal_event_of_odd_shapes_is_stored_and_breaks_no_page",
    "console/hostile/test_input::test_odd_metric_names_sort_and_filter_without_a_fault",
    "jobs/sweeps/test_sweeps::test_a_long_queue_is_judged_again_with_few_queries",
    "console/audit/test_audit::test_each_filter_leaves_its_rows_newest_first",
)


@pytest.mark.postgres
@pytest.mark.processes
@pytest.mark.slow("100 tests of the light part, on another database")
@pytest.mark.parametrize(
    "names", [pytest.param(SAME, id="same"), pytest.param(MORE, id="more", marks=pytest.mark.proof)]
)
def test_the_same_tests_pass_on_postgresql(postgres: Postgres, tmp_path: Path, names: Sequence[str]) -> None:
    environment = {**os.environ, "DATABASE_URL": postgres.url, "PITWALL_DATA_DIR": str(tmp_path)}
    files = [f"tests/{file}.py{of}{test}" for file, of, test in (name.partition("::") for name in names)]
    # The cluster goes away with everything in it, so nobody needs to drop the database under open connections.
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--reuse-db",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
        *files,
    ]

    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout.strip().splitlines()[-1]
