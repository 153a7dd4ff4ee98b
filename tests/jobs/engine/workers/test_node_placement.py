"""What a run tells of where its workers sit."""

from jobs.engine.workers.node_placement import RunNode, placement_note

HEAD = RunNode(ray_id="aa", index=0, address="10.0.0.1", name="head")
BLUE = RunNode(ray_id="bb", index=1, address="10.0.0.2", name="blue")


def test_a_run_on_one_node_tells_nothing() -> None:
    assert placement_note([("policy", 0, HEAD), ("vllm", 0, HEAD)]) == ("", [])


def test_who_sits_where_is_told_for_people_and_programs() -> None:
    text, nodes = placement_note([("policy", 0, BLUE), ("vllm", 0, HEAD), ("reference", 0, BLUE)])

    assert text == (
        "Workers: vllm 0 on the driver's node, head (10.0.0.1); policy 0, reference 0 on node 1, blue (10.0.0.2)"
    )
    assert [(n["index"], n["node"], n["workers"]) for n in nodes] == [
        (0, "aa", ["vllm-0"]),
        (1, "bb", ["policy-0", "reference-0"]),
    ]


def test_a_run_whose_workers_all_sit_on_another_node_tells_so() -> None:
    text, nodes = placement_note([("policy", 0, BLUE)])

    assert text == "Workers: policy 0 on node 1, blue (10.0.0.2)"
    assert [n["index"] for n in nodes] == [1]
