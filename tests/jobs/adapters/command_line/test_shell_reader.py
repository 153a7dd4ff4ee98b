"""Shell text is read as a shell would read it, and nothing of it is run."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.command_line.shell_reader import MAX_CHARACTERS, commands_of, find_program

SUBMIT = r"""
set -x
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": "/openrlhf", "env_vars": {"NCCL_DEBUG": "INFO"}}' \
   -- python3 -m trainer.go \
   --reference_nodes 1 \
   --template $'User: {}\nAssistant: ' \
   --two "a b" > log 2>&1 | tee other
"""

HEREDOC = r"""
export WANDB_MODE=offline   # not now
read -r -d '' training_commands <<EOF
trainer.go \
   --max_len 2048 \
   --dataset ${DATASET:-Open-Orca/OpenOrca}
EOF
   # --use_wandb [KEY]
if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
"""

ARRAY = r"""
files=$HOME/data/train.parquet
NODES=${NODES:-2}
ARGS=(
  data.x=1  # the first
  "data.files=['$files']"
)
ARGS+=(one=more)
HYDRA_FULL_ERROR=1 python3 -m trainer.go "${ARGS[@]}" nodes=$NODES name=$(date +%s) $@ &
"""


def is_trainer(word: str) -> bool:
    return word == "trainer.go"


def test_a_submitted_job_gives_the_trainers_words_and_the_jobs_environment() -> None:
    found = find_program(SUBMIT, is_trainer)

    assert found is not None
    assert found.arguments == ("--reference_nodes", "1", "--template", "User: {}\nAssistant: ", "--two", "a b")
    assert found.env == {"NCCL_DEBUG": "INFO"}
    assert found.before[-2:] == ("python3", "-m")


def test_words_in_a_here_document_are_found_where_they_are_used() -> None:
    found = find_program(HEREDOC, is_trainer)

    assert found is not None
    assert found.arguments == ("--max_len", "2048", "--dataset", "Open-Orca/OpenOrca")
    assert found.before == ("deepspeed", "--module")
    assert found.env == {"WANDB_MODE": "offline"}


def test_arrays_and_variables_of_the_text_are_filled_in_and_the_rest_stays() -> None:
    found = find_program(ARRAY, is_trainer)

    assert found is not None
    assert found.arguments == (
        "data.x=1",
        "data.files=['$HOME/data/train.parquet']",
        "one=more",
        "nodes=2",
        "name=$(date +%s)",
    )
    assert found.env == {"HYDRA_FULL_ERROR": "1"}


def test_a_command_inside_a_command_is_found() -> None:
    found = find_program("""docker exec -it box bash -c 'cd /a && python -m trainer.go --x "1 2"'""", is_trainer)

    assert found is not None
    assert found.arguments == ("--x", "1 2")


@pytest.mark.parametrize(
    "text",
    [
        "time env -u B A=1 trainer.go",
        "nohup sudo -E A=1 trainer.go",
        "docker run -v /a:/b -e A=1 box trainer.go",
        "podman run --env=A=1 box trainer.go",
        "ray job submit --no-wait -- A=1 trainer.go",
    ],
)
def test_what_a_launcher_sets_is_seen(text: str) -> None:
    found = find_program(text, is_trainer)

    assert found is not None
    assert found.env == {"A": "1"}


@pytest.mark.parametrize("text", ["python -m trainer.go --x '1", 'trainer.go "', "trainer.go `date"])
def test_a_quote_without_end_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is opened and never closed"):
        commands_of(text)


def test_a_text_beyond_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="a command has at most 200,000"):
        commands_of("x" * (MAX_CHARACTERS + 1))


def test_text_without_the_program_gives_nothing() -> None:
    assert find_program("echo trainer.gone && ls", is_trainer) is None


def test_nothing_is_run(tmp_path: Path) -> None:
    target = tmp_path / "made"

    commands_of(f"touch {target}; $(touch {target}) `touch {target}` trainer.go > {target}")

    assert not target.exists()


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12), max_size=6))
def test_quoted_words_are_read_as_the_shell_library_wrote_them(words: list[str]) -> None:
    text = shlex.join(["trainer.go", *words]).replace("\r\n", "\n")

    found = find_program(text, is_trainer)

    assert found is not None
    assert list(found.arguments) == [word.replace("\r\n", "\n") for word in words]


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    said = "."
    try:
        commands_of(text)
    except ValueError as error:
        said = str(error)

    assert said.endswith(".")


def test_variables_that_double_are_refused() -> None:
    with pytest.raises(ValueError, match="grow beyond"):
        commands_of("A=xxxxxxxx\n" + "A=$A$A\n" * 60)
