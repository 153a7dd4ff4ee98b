"""A reward server over real HTTP: what is sent, what is believed, and what becomes of one that fails or is hostile."""

import importlib.util
import threading
from pathlib import Path

import pytest

from jobs.catalog.spec.runspec import RewardPart
from jobs.engine.failures.failure_cause import RunStopped, cause_of
from jobs.engine.rewards.url import ServerReward
from jobs.engine.rollouts import scoring_client
from jobs.engine.rollouts.reward import Completion, RewardFailed, Score, ScoringLimits, ServiceLimits
from jobs.engine.rollouts.reward_worker import RewardWorker
from jobs.engine.rollouts.scoring_client import wait_seconds
from tests.jobs.engine.rollouts.services import Answer, Asked, Reply, as_json, scores_of, serving

EXAMPLE = Path(__file__).parents[4] / "docs/examples/reward_server.py"
TOKEN = "t0p-secret"


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring_client, "wait_seconds", lambda number, *, server: 0.0)


def texts(*completions: str) -> list[Completion]:
    return [Completion(prompt="p", completion=text, answer="1") for text in completions]


def opened(url: str, *, token_env: str = "", keeps: bool = False, seconds: float = 20.0, **more: float) -> ServerReward:
    limits = ScoringLimits(
        timeout_seconds=seconds,
        keeps_failures=keeps,
        service=ServiceLimits(**({"retries": 0, "breaker_failures": 0} | more)),  # type: ignore[arg-type]
    )
    return ServerReward(RewardPart(kind="url", location=url, token_env=token_env), limits)


def totals(outcomes: list[Score | RewardFailed]) -> list[float | str]:
    return [each.total if isinstance(each, Score) else each.kind for each in outcomes]


def failure_of(answer: Answer, *, count: int = 2, **options: float) -> RewardFailed:
    with serving(answer) as service, pytest.raises(RewardFailed) as caught:
        opened(service.url, **options).score(texts(*"ab"[:count]))  # type: ignore[arg-type]
    return caught.value


def test_batches_are_sent_side_by_side_and_scores_come_back_in_order() -> None:
    def answer(asked: Asked) -> Reply:
        return as_json({"scores": [float(len(text)) for text in asked.body["completions"]]})

    with serving(answer) as service:
        outcomes = opened(service.url, batch_size=2).score(texts("a", "bb", "ccc", "dddd", "eeeee"))

    assert totals(outcomes) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert sorted(len(asked.body["prompts"]) for asked in service.asked) == [1, 2, 2]
    assert {asked.body["version"] for asked in service.asked} == {1}
    assert service.asked[0].body["answers"][0] == "1"


def test_what_fails_in_passing_is_sent_again() -> None:
    def answer(asked: Asked) -> Reply:
        return as_json({"error": "busy"}, status=503) if asked.number < 3 else as_json({"scores": [0.5]})

    with serving(answer) as service:
        assert totals(opened(service.url, retries=2).score(texts("a"))) == [0.5]
    assert len(service.asked) == 3


@pytest.mark.parametrize(
    ("answer", "says", "num_asked"),
    [
        (lambda _: Reply(b"no", 400), "answered with status 400, 'no'", 1),
        (lambda _: Reply(b"", 302, {"Location": "http://127.0.0.1:1/"}), "a redirect, and none is followed", 1),
        (lambda _: Reply(b"<html>"), "not JSON but '<html>'", 1),
        (lambda _: Reply(b"[" * 100_000), "not JSON", 1),
        (lambda _: as_json([1, 2]), 'no object with a list "scores"', 1),
        (lambda _: as_json({"scores": "12"}), 'no object with a list "scores"', 1),
        (scores_of(1.0), "1 scores for 2 completions", 1),
        (scores_of(1.0, 2.0, 3.0), "3 scores for 2 completions", 1),
        (scores_of(1.0, float("nan")), "score 2 of 2 is 'nan', not a finite number", 1),
        (scores_of(1.0, 10**400), "not a finite number", 1),
        (scores_of(True, 1.0), "score 1 of 2 is 'True'", 1),
        (scores_of(None, 1.0), "score 1 of 2 is 'None'", 1),
        (lambda _: Reply(b" " * (9 << 20)), "larger than 8 MiB", 1),
        (lambda _: Reply(b"x", 200, {"Content-Encoding": "gzip"}), "compressed", 1),
        (lambda _: as_json({}, status=500), "did not score in 3 tries (reward.retries); the last: status 500", 3),
        (lambda _: Reply(b"{}", 200, {"Content-Length": "99"}), "did not score in 3 tries", 3),
    ],
)
def test_what_no_score_is_made_of(answer: Answer, says: str, num_asked: int) -> None:
    with serving(answer) as service, pytest.raises(RewardFailed) as caught:
        opened(service.url, retries=2).score(texts("a", "b"))

    assert says in str(caught.value)
    assert len(service.asked) == num_asked


def test_a_server_that_hangs_is_left_at_the_time_limit() -> None:
    failed = failure_of(lambda _: None, seconds=0.2)

    assert "no answer within 0.2 s (reward.timeout_seconds)" in str(failed)
    assert cause_of(failed, step=3, log_tail={})["side"] == "cluster"


def test_a_stop_ends_the_wait_for_a_server_that_hangs() -> None:
    def stop() -> None:
        raise RunStopped

    with serving(lambda _: None) as service:
        limits = ScoringLimits(check=stop, service=ServiceLimits())
        with pytest.raises(RunStopped):
            ServerReward(RewardPart(kind="url", location=service.url), limits).score(texts("a"))


def test_a_server_that_dies_fails_its_batches_and_then_is_left_alone() -> None:
    with serving(scores_of(1.0)) as service:
        reward = opened(service.url, keeps=True, batch_size=1, num_at_once=1, breaker_failures=2, breaker_seconds=1e6)
        alive = reward.score(texts("a"))
        service.stop()
        dead = reward.score(texts("a", "b", "c"))

    assert totals(alive) == [1.0]
    assert totals(dead) == ["unreachable"] * 3
    assert "was not asked: 2 requests in a row failed" in str(dead[2])


def test_a_failed_request_is_the_failure_of_its_completions_alone() -> None:
    def answer(asked: Asked) -> Reply:
        return as_json({"scores": [1.0, 1.0] if "bad" not in asked.body["completions"] else []})

    with serving(answer) as service:
        outcomes = opened(service.url, keeps=True, batch_size=2).score(texts("a", "b", "bad", "c"))

    assert totals(outcomes) == [1.0, 1.0, "wrong_type", "wrong_type"]


def test_the_token_goes_to_the_server_and_into_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_TOKEN", TOKEN)

    def echo(asked: Asked) -> Reply:
        return Reply(asked.headers["Authorization"].encode(), 400)

    with serving(echo) as service, pytest.raises(RewardFailed) as caught:
        opened(service.url + "?key=hidden", token_env="REWARD_TOKEN").score(texts("a"))

    assert service.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_token_that_is_not_there_is_named_before_the_first_step() -> None:
    with pytest.raises(RewardFailed, match="the variable REWARD_NOT_SET holds none") as caught:
        opened("http://127.0.0.1:1/", token_env="REWARD_NOT_SET")

    assert caught.value.kind == "not_started"


def test_code_of_a_reward_does_not_see_the_tokens_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_TOKEN", TOKEN)
    worker = RewardWorker("", file_name="mine.py", deadline=0.0)
    try:
        environ = Path(f"/proc/{worker._process.pid}/environ").read_bytes()
    finally:
        worker.close()

    assert TOKEN.encode() not in environ


def test_waits_double_are_drawn_and_end_at_half_a_minute() -> None:
    shortest = [wait_seconds(n, draw=lambda low, _: low) for n in (1, 2, 3, 20)]
    longest = [wait_seconds(n, draw=lambda _, high: high) for n in (1, 2, 3, 20)]

    assert shortest == [0.25, 0.5, 1.0, 15.0]
    assert longest == [0.5, 1.0, 2.0, 30.0]
    assert wait_seconds(1, server=7.0) == 7.0
    assert wait_seconds(1, server=7000.0) == 30.0


def test_the_example_server_scores_and_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("reward_server", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setenv("REWARD_TOKEN", TOKEN)
    server = example.make_server(0, token=TOKEN, host="127.0.0.1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/score"
    try:
        right, wrong = totals(opened(url, token_env="REWARD_TOKEN").score(texts("it is 1", "no idea")))
        with pytest.raises(RewardFailed, match="status 401"):
            opened(url).score(texts("a"))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    assert isinstance(right, float)
    assert isinstance(wrong, float)
    assert right > 0.9 > 0 > wrong
