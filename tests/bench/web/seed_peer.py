"""Fill a store of MLflow or TensorBoard by its own writer: `PYTHON seed_peer.py PEER STORE SERIES POINTS`.

It runs with the peer's Python, which has nothing of this project, and prints the address of what it made.
"""

import sys
from importlib import import_module
from pathlib import Path

BATCH = 1000  # what MLflow takes at once


def mlflow(store: Path, series: int, points: int) -> str:
    """Log a run into SQLite; return its page of charts."""
    client = import_module("mlflow").MlflowClient(tracking_uri=f"sqlite:///{store}/mlflow.db")
    metric = import_module("mlflow.entities").Metric
    experiment = client.create_experiment("bench")
    run = client.create_run(experiment).info.run_id
    rows = [
        metric(f"group_{i % 20:02d}/m_{i:04d}", i + k / 7, 1000 * k, k) for i in range(series) for k in range(points)
    ]
    for start in range(0, len(rows), BATCH):
        client.log_batch(run, metrics=rows[start : start + BATCH])
    return f"/#/experiments/{experiment}/runs/{run}/model-metrics"


def tensorboard(store: Path, series: int, points: int) -> str:
    """Write one file of events; return the page of its charts."""
    writer = import_module("tensorboard.summary.writer.event_file_writer").EventFileWriter(str(store / "run"))
    protos = import_module("tensorboard.compat.proto.summary_pb2")
    events = import_module("tensorboard.compat.proto.event_pb2")
    for k in range(points):
        values = [
            protos.Summary.Value(tag=f"group_{i % 20:02d}/m_{i:04d}", simple_value=i + k / 7) for i in range(series)
        ]
        writer.add_event(events.Event(step=k, wall_time=1.8e9 + k, summary=protos.Summary(value=values)))
    writer.close()
    return "/#timeseries"


if __name__ == "__main__":
    made = {"mlflow": mlflow, "tensorboard": tensorboard}[sys.argv[1]]
    print(made(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
