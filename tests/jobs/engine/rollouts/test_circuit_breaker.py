"""The breaker's three states, by a clock of the test's own."""

from jobs.engine.rollouts.circuit_breaker import CircuitBreaker


def test_it_opens_after_failures_in_a_row_and_lets_one_probe_through() -> None:
    now = [0.0]
    breaker = CircuitBreaker(failures=2, seconds=10.0, clock=lambda: now[0])

    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert not breaker.is_open
    breaker.failed()
    assert not breaker.lets_through()
    now[0] = 10.0
    assert [breaker.lets_through(), breaker.lets_through()] == [True, False]
    breaker.failed()
    assert not breaker.lets_through()
    now[0] = 20.0
    assert breaker.lets_through()
    breaker.succeeded()
    assert [breaker.lets_through(), breaker.lets_through(), breaker.is_open] == [True, True, False]


def test_with_no_limit_it_never_opens() -> None:
    breaker = CircuitBreaker(failures=0, seconds=10.0)
    for _ in range(100):
        breaker.failed()

    assert breaker.lets_through()
