"""One holder at a time, and the next one when it lets go; the same on SQLite and PostgreSQL."""

import threading

import pytest
from django.db import connection

from jobs.telemetry.lock import sole_holder


class Other(threading.Thread):
    """Another process's attempt to hold the name, with a connection of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True)
        self._wanted = name
        self.ending = threading.Event()
        self.has_it = threading.Event()
        self.got: bool | None = None
        self.let_go = threading.Event()

    def run(self) -> None:
        with sole_holder(self._wanted, ending=self.ending, poll_seconds=0.01) as is_mine:
            self.got = is_mine
            self.has_it.set()
            if is_mine:
                self.let_go.wait(60)
        connection.close()


@pytest.mark.django_db(transaction=True)
def test_a_second_holder_waits_for_the_first() -> None:
    other = Other("step")
    with sole_holder("step", ending=threading.Event()) as is_mine:
        assert is_mine
        other.start()
        assert not other.has_it.wait(0.2)

    assert other.has_it.wait(60)
    assert other.got is True
    other.let_go.set()
    other.join(60)


@pytest.mark.django_db(transaction=True)
def test_who_waits_can_be_told_to_end() -> None:
    other = Other("step")
    with sole_holder("step", ending=threading.Event()):
        other.start()
        other.ending.set()
        other.join(60)

    assert other.got is False


@pytest.mark.django_db(transaction=True)
def test_names_do_not_stand_in_each_others_way() -> None:
    with sole_holder("one", ending=threading.Event()) as first:
        other = Other("another")
        other.start()
        assert first
        assert other.has_it.wait(60)
        assert other.got is True
        other.let_go.set()
        other.join(60)
