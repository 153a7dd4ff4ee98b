"""Where the cluster has other trainers, as PITWALL_TRAINERS says it."""

from pathlib import Path

import pytest

from jobs.catalog.trainer import trainers
from jobs.catalog.trainer_environment import TrainersMisread, environment_of, found_below, read_environments, to_text

OTHERS = ", ".join(name for name, info in trainers().items() if info.package)
DECLARED = "openrlhf-0.11.2=/srv/o/bin/python; openrlhf=installed;\nverl-0.9.1=image:some/verl:0.9.1"


def test_places_are_read_and_written() -> None:
    environments = read_environments(DECLARED)

    assert [(p.name, p.kind, p.at) for p in environments] == [
        ("openrlhf-0.11.2", "python", "/srv/o/bin/python"),
        ("openrlhf", "installed", ""),
        ("verl-0.9.1", "image", "some/verl:0.9.1"),
    ]
    assert read_environments(to_text(environments)) == environments
    assert read_environments("") == ()


def test_the_version_itself_wins_over_every_version() -> None:
    environments = read_environments(DECLARED)

    exact, other = environment_of("openrlhf", "0.11.2", environments), environment_of("openrlhf", "0.8.6", environments)

    assert exact is not None
    assert exact.kind == "python"
    assert other is not None
    assert other.kind == "installed"
    assert environment_of("native", "", environments) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("openrlhf-0.11.2", "the entry 'openrlhf-0.11.2'. Write <trainer>-<version>=<place>"),
        ("nobody-1.0=/x/python", f"a trainer 'nobody'. Known: {OTHERS}"),
        ("native=/x/python", f"a trainer 'native'. Known: {OTHERS}"),
        ("verl-0.1=/x/python", "versions of verl that are known: 0.9.1"),
        ("verl=bin/python", "at 'bin/python'. Give the absolute path"),
        ("verl=image:", "names no image for verl"),
    ],
)
def test_what_makes_no_sense_is_named(text: str, sentence: str) -> None:
    with pytest.raises(TrainersMisread, match="PITWALL_TRAINERS") as refused:
        read_environments(text)

    assert sentence in str(refused.value)


def test_finished_environments_are_found_by_their_folders(tmp_path: Path) -> None:
    for name, is_finished in {"openrlhf-0.11.2": True, "verl-0.9.1": False, "verl-0.0.1": True, "notes": True}.items():
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").touch()
        if is_finished:
            (tmp_path / name / "pitwall.json").touch()

    (found,) = found_below(tmp_path)

    assert str(found) == f"openrlhf-0.11.2={tmp_path}/openrlhf-0.11.2/bin/python"
    assert found_below(tmp_path / "nothing") == ()
