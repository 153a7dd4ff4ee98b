"""`manage.py trace rank0.json.gz rank1.json.gz`: upload files as one trace through the API, or list what is there."""

from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand
from console.command_line.api_json import TraceJson

FAILED = 1


def _files_of(path: Path) -> list[Path]:
    """Return a file, or those that lie in a folder (not deeper, nor hidden ones), by name."""
    if path.is_file():
        return [path]
    inside = sorted(file for file in path.iterdir() if file.is_file() and file.name[0] != ".") if path.is_dir() else []
    if not inside:
        what = "holds no file" if path.is_dir() else "is no file"
        raise CommandError(f"{path} {what}. Name files with traces, or a folder of them.", returncode=REFUSED)
    return inside


class Command(ApiCommand):
    """Upload trace files, wait until they are imported, and print the page's address; without files, list traces.

    Exit code 0 ready, 1 an import failed, 3 refused, 4 the console is away.
    """

    help = "Upload trace files as one trace through the API, or list traces"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument(
            "files", nargs="*", metavar="FILE", help="files of one recording, or a folder of them: one per rank, say"
        )
        parser.add_argument("--name", default="", help="what the trace is called; else as its first file")
        parser.add_argument("--run", default="", help="id of the run that it is of")
        parser.add_argument("--project", help="slug of the project; else your first one")
        parser.add_argument("--no-wait", action="store_true", help="do not wait for the import")
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Upload or list, and leave with the exit code."""
        files = [file for name in options["files"] for file in _files_of(Path(name))]
        if not files:
            self.ask(options, lambda client: self._list(client, options["project"]))
            return
        self.ask(options, lambda client: self._upload(client, files, options))

    def _upload(self, client: ApiClient, files: list[Path], options: Mapping[str, Any]) -> int:
        about = {
            "name": options["name"],
            "run": options["run"],
            "files": [{"name": file.name, "size": file.stat().st_size} for file in files],
        }
        trace = client.announce_trace(about, project=options["project"])
        for layer, file in zip(trace["layers"], files, strict=True):
            client.send_trace_file(trace["id"], layer["id"], file)
            self.stdout.write(f"{file.name} sent")
        if options["no_wait"]:
            self.stdout.write(f"{options['url'].rstrip('/')}{trace['url']}")
            return 0
        printed: dict[int, str] = {}

        def tell(now: TraceJson) -> None:
            for layer in now["layers"]:
                if printed.get(layer["id"]) != layer["state"]:
                    printed[layer["id"]] = layer["state"]
                    events = f", {layer['events']:,} events" if layer["events"] is not None else ""
                    self.stdout.write(f"{layer['file_name']}: {layer['state']}{events}")

        try:
            ended = client.follow_trace(trace["id"], tell=tell)
        except KeyboardInterrupt:
            self.stdout.write("\nNo longer following; the import goes on")
            return 0
        problems = [f"{layer['file_name']}: {layer['problem']}" for layer in ended["layers"] if layer["problem"]]
        for problem in problems:
            self.stderr.write(problem)
        self.stdout.write(f"{options['url'].rstrip('/')}{trace['url']}")
        return FAILED if problems else 0

    def _list(self, client: ApiClient, project: str | None) -> int:
        for trace in client.traces(project=project):
            states = sorted({layer["state"] for layer in trace["layers"]}) or ["no file yet"]
            self.stdout.write(
                f"{trace['id']}  {', '.join(states):<12}  {len(trace['layers']):>3} files  {trace['name']}"
            )
        return 0
