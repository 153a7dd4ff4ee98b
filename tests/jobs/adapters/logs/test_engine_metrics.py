"""Metrics of rollout servers: read over HTTP from the text that vLLM's own Prometheus registry wrote."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobs.adapters.logs.engine_metrics import EngineMetrics, numbers_of, readings
from jobs.adapters.verl.logs import printed_servers

# 3 running, 2 waiting, a fourth of the cache in use, 40 of 100 tokens found in it, 50 generated, 1 preempted.
TEXT = (Path(__file__).parents[3] / "data" / "trainer_logs" / "vllm_metrics.txt").read_text(encoding="utf-8")


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(TEXT.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_is_read_under_the_names_of_our_own_engine_and_one_that_is_gone_is_left_out(server: str) -> None:
    engines = EngineMetrics()
    engines._addresses = ("127.0.0.1:1", server)

    engines.look()

    (event,) = engines.events()
    assert (event["kind"], event["role"], event["rank"]) == ("system", "vllm", 1)
    assert event["values"] == {"running_requests": 3.0, "waiting_requests": 2.0, "kv_cache_percent": 25.0}
    assert engines.events() == []


def test_counters_are_told_as_what_was_added_and_not_across_a_new_start() -> None:
    before = numbers_of(TEXT)
    now = {name: 2 * value if name.endswith(("_total", "_sum", "_count")) else value for name, value in before.items()}

    values = readings(now, before, seconds=5.0)

    assert values["preemptions"] == 1.0
    assert values["prefix_cache_hit_percent"] == 40.0
    assert values["generated_tokens_per_second"] == 10.0
    assert values["time_to_first_token_seconds"] == 1.0
    assert set(readings(before, now, seconds=5.0)) == {"running_requests", "waiting_requests", "kv_cache_percent"}


def test_several_engines_of_a_server_are_added_up_and_the_fullest_cache_counts() -> None:
    text = "".join(
        f'sglang:num_running_reqs{{tp_rank="{i}"}} {i}\nsglang:token_usage{{tp_rank="{i}"}} 0.{i}\n' for i in (1, 2)
    )

    assert readings(numbers_of(text + "# sglang:x 3\nsglang:odd x\n"), {}, 0.0) == {
        "running_requests": 3.0,
        "kv_cache_percent": 20.0,
    }


def test_requests_of_one_priority_are_not_counted_beside_all_and_retracted_ones_were_preempted() -> None:
    """As SGLang 0.5.23 writes them under priority scheduling: the total has the label's empty value."""
    counts = {"": 5, "1": 3, "2": 2}
    text = "".join(
        f'sglang:num_queue_reqs{{model_name="m",priority="{priority}",tp_rank="0"}} {count}\n'
        for priority, count in counts.items()
    )
    retracted = 'sglang:num_retracted_requests_total{model_name="m",priority=""} %d\n'

    now, before = (numbers_of(text + retracted % count) for count in (9, 7))

    assert readings(now, before, 5.0) == {"waiting_requests": 5.0, "preemptions": 2.0}


@pytest.mark.parametrize("name", ["LLMServerManager", "AgentLoopManager"])
def test_verls_servers_are_found_where_it_prints_them(name: str) -> None:
    line = f"\x1b[36m(TaskRunner pid=812)\x1b[0m {name}: ['10.0.0.7:41233', 'node-8:38111']"

    assert printed_servers(line) == ("10.0.0.7:41233", "node-8:38111")
    assert printed_servers("(TaskRunner pid=812) step:3 - actor/pg_loss:0.1") == ()
