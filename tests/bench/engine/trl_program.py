"""TRL's side: `python trl_program.py SETTINGS.json`, run by the interpreter of TRL's own environment.

It trains with TRL's own trainer and writes `steps-<rank>.jsonl` into the folder that the settings name: a line for each
rollout (what was sampled and rewarded), for each step that ended (Unix seconds) and for what TRL logs of it. With
several processes each writes a file of its own.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO


class StepLog:
    """The file of this process; a line at a time, so that a run that is cut off leaves what it did."""

    def __init__(self, folder: Path) -> None:
        self._file: TextIO = (folder / f"steps-{os.environ.get('RANK', '0')}.jsonl").open("w", buffering=1)

    def write(self, kind: str, **values: Any) -> None:
        """Write one line."""
        self._file.write(json.dumps({"kind": kind, **values}) + "\n")


def scorer_of(source: str) -> Callable[[str, str, str], float]:
    """Return the reward: the custom source's, or without one the built-in trainer's own of word problems."""
    if source:
        names: dict[str, Any] = {}
        exec(source, names)
        return names["reward"]  # type: ignore[no-any-return]
    from jobs.engine.rewards.math import MathReward
    from jobs.engine.rollouts.reward import Completion, ScoringLimits

    reward = MathReward(ScoringLimits())

    def score(prompt: str, completion: str, answer: str) -> float:
        return reward.score([Completion(prompt=prompt, completion=completion, answer=answer)])[0].total

    return score


def reward_function(log: StepLog, source: str) -> Callable[..., list[float]]:
    """Return the function that TRL calls with a rollout; it also writes down what was in it."""
    score = scorer_of(source)

    def reward(
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        answer: Sequence[str],
        **_: Any,
    ) -> list[float]:
        asked = [prompt[-1]["content"] for prompt in prompts]
        answered = [completion[-1]["content"] for completion in completions]
        rewards = [score(*each) for each in zip(asked, answered, answer, strict=True)]
        lengths = [len(ids) for ids in completion_ids]
        log.write("rollout", prompts=sorted(set(asked)), lengths=lengths, rewards=rewards)
        return rewards

    return reward


def make_trainer(settings: Mapping[str, Any], log: StepLog, callback: Any) -> Any:
    """Return TRL's trainer, ready to train."""
    from datasets import Dataset

    rows = json.loads(Path(settings["rows"]).read_text())
    config = {**settings["config"], "output_dir": str(Path(settings["folder"]) / "output")}
    model = {"model_init_kwargs": {"dtype": "float32"}}
    prompts = [[{"role": "user", "content": row["prompt"]}] for row in rows]
    if settings["algorithm"] == "grpo":
        from trl import GRPOConfig, GRPOTrainer

        data = Dataset.from_list([{"prompt": p, "answer": r["answer"]} for p, r in zip(prompts, rows, strict=True)])
        return GRPOTrainer(
            model=settings["model"],
            reward_funcs=reward_function(log, settings["reward"]),
            args=GRPOConfig(**config, **model),
            train_dataset=data,
            callbacks=[callback],
        )
    if settings["algorithm"] == "dpo":
        from trl import DPOConfig, DPOTrainer

        sides = ("chosen", "rejected")
        pairs = [{side: [{"role": "assistant", "content": row[side]}] for side in sides} for row in rows]
        data = Dataset.from_list([{"prompt": p, **pair} for p, pair in zip(prompts, pairs, strict=True)])
        arguments = DPOConfig(**config, **model)
        return DPOTrainer(model=settings["model"], args=arguments, train_dataset=data, callbacks=[callback])
    from trl import SFTConfig, SFTTrainer

    class InOrder(SFTTrainer):  # type: ignore[misc]
        """Where a sampler balances the micro-batches of a step, it takes the steps' rows in the data's order."""

        def _get_train_sampler(self, *arguments: Any, **named: Any) -> Any:
            sampler = super()._get_train_sampler(*arguments, **named)
            if hasattr(sampler, "shuffle"):
                sampler.shuffle = False
            return sampler

    answers = [[{"role": "assistant", "content": row["response"]}] for row in rows]
    data = Dataset.from_list([{"prompt": p, "completion": a} for p, a in zip(prompts, answers, strict=True)])
    return InOrder(model=settings["model"], args=SFTConfig(**config, **model), train_dataset=data, callbacks=[callback])


def main() -> None:
    """Train, and write down when each step ended; the model stays in `model` where the settings say so."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    import torch

    torch.set_num_threads(settings["threads"])
    from transformers import TrainerCallback

    log = StepLog(Path(settings["folder"]))

    class Clock(TrainerCallback):  # type: ignore[misc]
        """The end of each step, and what TRL says of it."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            log.write("begin", end=time.time())

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            log.write("step", step=state.global_step, end=time.time())

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **_: Any) -> None:
            log.write("log", step=state.global_step, values=dict(logs))

    trainer = make_trainer(settings, log, Clock())
    trainer.train()
    if settings.get("keeps_model"):
        trainer.save_model(str(Path(settings["folder"]) / "model"))


if __name__ == "__main__":
    main()
