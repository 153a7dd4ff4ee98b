"""The model that is trained to answer: it scores, learns, sends its weights, and is what a run leaves.

Runs inside an actor (actor.py), which imports it by name.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from jobs.catalog.algorithm import is_in
from jobs.catalog.role import ROLES, trains_adapters
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Counts, Loss, PolicyOutputs
from jobs.engine.batch import Batch
from jobs.engine.data.model_files import longest_sequence, model_folder, text_files
from jobs.engine.data.text import TextModel
from jobs.engine.device import Lender, Sender
from jobs.engine.logprob_gap import GapSums, gap_sums, total
from jobs.engine.policy_gradient import entropy_bonus
from jobs.engine.roles.adapters import AdapterConfig, adapter_files, exported_parameters, without_adapters
from jobs.engine.roles.critic import Critic
from jobs.engine.roles.language_model import EXPORT_BYTES, buckets, gathered, load_model, score, temperature_of
from jobs.engine.roles.reward_scorer import RewardScorer
from jobs.engine.roles.sampler import Sampler, SamplingLimits
from jobs.engine.roles.state_moves import StateMoves
from jobs.engine.roles.teacher import Teacher, TeacherScores
from jobs.engine.roles.trained_model import GATHER_BYTES, TrainedModel
from jobs.engine.rollouts.request import GenerationRequest, SampledResponse


class Policy(TrainedModel):
    """A rank of the policy."""

    role = "policy"

    def __init__(self, *, spec: RunSpec, **place: Any) -> None:
        self._folder = model_folder(spec.model)
        self._sender: Sender | None = None
        self._gaps: list[GapSums] = []
        if spec.needs("vllm"):
            longest_sequence(spec, self._folder)  # refused here where the ranks draw themselves
        super().__init__(spec=spec, **place)
        self._cut = replace(self._cut, is_packed=self._engine.module.is_packed)
        self._reference: torch.nn.Module | None = None
        if spec.needs("reference") and not ROLES["reference"].num_workers(spec) and not trains_adapters(spec):
            model = self._load_in(None)  # whole, also where ZeRO-3 divides what is trained
            self._reference = model.to(self._device.torch_device()).eval().requires_grad_(requires_grad=False)
        self._teacher: Teacher | None = None
        if spec.needs("teacher") and not ROLES["teacher"].num_workers(spec):
            self._teacher = Teacher(spec=spec, device=self._device.name)
        self.critic: Critic | None = None
        if spec.needs("critic") and not ROLES["critic"].num_workers(spec):
            self.critic = Critic(spec=spec, **place)
        self.reward: RewardScorer | None = None
        if spec.needs("reward") and not ROLES["reward"].num_workers(spec):
            self.reward = RewardScorer(spec=spec, device=self._device.name)
        self._sampler: Sampler | None = None
        self._eos_ids: list[int] = []
        self._lender: Lender | None = None
        self._lent: Iterator[dict[str, Any]] | None = None
        self._moves = StateMoves(
            self._engine,
            stage=self._stage,
            is_pinned=self._device.gives_back_memory,
            is_on_host=bool(spec.knob("memory.adam_offload")),
        )

    def _load(self) -> torch.nn.Module:
        return self._load_in(self._sharding())

    def _load_in(self, sharding: contextlib.AbstractContextManager[None] | None) -> torch.nn.Module:
        precision = str(self._spec.knob("memory.precision"))
        has_bonus = is_in(self._spec.algorithm, "rl") and entropy_bonus(self._spec) > 0
        return load_model(
            self._folder,
            precision=precision,
            is_packed=self._cut.is_packed,
            sharding=sharding,
            with_entropy_gradient=has_bonus,
        )

    def _wanted_adapters(self) -> AdapterConfig | None:
        return AdapterConfig.of(self._spec)

    # -- learning --

    def take_spec(self, spec: RunSpec) -> None:
        """See TrainedModel; the critic and the teacher that this rank holds go on with them, too."""
        super().take_spec(spec)
        if self.critic is not None:
            self.critic.take_spec(spec)
        if self._teacher is not None:
            self._teacher.take_spec(spec)

    def packing_problem(self) -> str:
        """Return why this model's sequences are padded although they were to be packed, as the end of a sentence."""
        return str(self._engine.module.packing_problem)

    def logprobs(self, batch: Batch) -> Tensor:
        """Return the log-probabilities of the batch's tokens with the weights of now: [B, L]."""
        if self._stage < 3:
            return self._score(self._engine.module, batch, self._cut.rows(batch.lengths_B))
        return self._score(self._engine, batch, self._micro_batches(batch))

    def generate(
        self, requests: Sequence[GenerationRequest], *, temperature: float | None = None
    ) -> list[SampledResponse]:
        """Return one completion per request, in order, by this rank's own weights, whole up to ZeRO-2, at this
        temperature, None: the run's.
        """
        spec = self._spec
        if self._sampler is None:
            text = TextModel(self._folder)
            self._eos_ids = [] if spec.knob("rollout.ignore_eos") else text.eos_ids
            self._sampler = Sampler(self._engine.module, pad_id=text.pad_id, device=self._device.torch_device())
        limits = SamplingLimits(
            temperature=spec.float_knob("rollout.temperature") if temperature is None else temperature,
            max_new_tokens=spec.int_knob("rollout.max_new_tokens"),
            eos_ids=self._eos_ids,
            batch_size=spec.int_knob("rollout.max_num_seqs"),
        )
        return self._sampler.generate(requests, limits)

    def reference_logprobs(self, batch: Batch) -> Tensor:
        """Return the log-probabilities by the frozen model that this rank holds beside its own, or by its own without
        adapters: [B, L]. A collective in ZeRO-3 with adapters.
        """
        if self._reference is None:
            with without_adapters(self._engine.module):
                return self.logprobs(batch)
        return self._score(self._reference, batch, self._cut.rows(batch.lengths_B))

    def teacher_scores(self, batch: Batch) -> TeacherScores:
        """Return what the teacher that this rank holds beside its own model says of the batch."""
        assert self._teacher is not None
        return self._teacher.scores(batch)

    def _score(self, model: Any, batch: Batch, micros: Sequence[Tensor]) -> Tensor:
        return score(
            model,
            batch,
            micros=micros,
            temperature=temperature_of(self._spec),
            device=self._device.torch_device(),
        )

    def _loss(self, micro: Batch, counts: Counts) -> Loss:
        outputs = self._outputs(micro)
        if micro.rollout_logprobs_BL is not None and micro.old_logprobs_BL is None:
            self._gaps.append(gap_sums(micro.rollout_logprobs_BL, outputs.logprobs_BL, micro.mask_BL))
        assert self._algorithm.policy_loss is not None
        return self._algorithm.policy_loss(micro, outputs, self._spec, counts)

    def _take_gap(self) -> GapSums | None:
        """What the micro-batches of the step said."""
        gaps, self._gaps = self._gaps, []
        return total(gaps) if gaps else None

    def _outputs(self, batch: Batch) -> PolicyOutputs:
        """Return the forward pass of a micro-batch, under the temperature at which its tokens were sampled."""
        temperature = temperature_of(self._spec)
        logprobs_BL, entropies_BL, *listed = self._engine(
            batch.tokens_BL, batch.mask_BL, temperature, batch.lengths_B, batch.teacher_ids_BLK
        )
        listed_logprobs_BLK, overlaps_BL = listed or (None, None)
        return PolicyOutputs(
            logprobs_BL=logprobs_BL,
            entropies_BL=entropies_BL,
            listed_logprobs_BLK=listed_logprobs_BLK,
            overlaps_BL=overlaps_BL,
        )

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> tuple[float, int]:
        """Return the summed cross-entropy of the counted tokens, and their number."""
        summed = 0.0
        for rows in self._micro_batches(batch):
            here = batch.rows(rows).to(self._device.torch_device())
            logprobs_BL, _ = self._engine(here.tokens_BL, here.mask_BL, 1.0, here.lengths_B)
            summed -= float(logprobs_BL.sum())
        return summed, batch.num_trained_tokens

    def readings(self) -> dict[str, float]:
        """Return measured bytes of model state on this rank, those of a critic that it holds with them."""
        own = super().readings()
        held = {} if self.critic is None else self.critic.readings()
        states = ("parameter_bytes", "gradient_bytes", "optimizer_bytes")
        return own | {name: own[name] + held[name] for name in states if name in held}

    # -- weights --

    def open_transfer(self, host: str, port: int, world_size: int) -> None:
        """Rank 0: open the weight transfer group and wait for the rollout workers."""
        self._sender = self._device.open_sender(host=host, port=port, world_size=world_size)

    def send_weights(self) -> None:
        """Broadcast every weight. Ranks above 0 only take part in gathering ZeRO-3's shards."""
        if self._sender is not None:
            self._sender.send(self._weights())
        elif self._stage == 3:
            for _ in self._weights():
                pass

    def open_lender(self, *, is_source: bool) -> None:
        """Get ready to lend weights to a rollout engine on this rank's device (Device.open_lender)."""
        sizes = [weight.num_bytes for weight in self._whole_weights()]
        self._lender = self._device.open_lender(
            rank=self._rank, is_source=is_source, capacity=max(min(GATHER_BYTES, sum(sizes)), *sizes)
        )

    def lend_weights(self) -> dict[str, Any] | None:
        """Lay out the next part of the weights and say where; None past the last. The last part must have been read.

        A collective in ZeRO-3: all ranks lay out the same weights at once.
        """
        assert self._lender is not None
        if self._lent is None:
            self._lent = self._lender.lend(self._weights())
        filling = next(self._lent, None)
        if filling is None:
            self._lent = None
        return filling

    def end_lending(self) -> None:
        """The engine has let go of what was lent."""
        assert self._lender is not None
        self._lender.end()

    # -- turns with a rollout engine on the same device --

    def states_off(self) -> None:
        """Leave room on the device for the engine's weights: all but this model's own weights goes to the host."""
        if self._device.gives_back_memory:
            self._moves.states_off()
            if self.critic is not None:
                self.critic.off()
            if self._reference is not None:
                self._reference.to("cpu")
            if self._teacher is not None:
                self._teacher.to("cpu")
            if self.reward is not None:
                self.reward.off()
            self._device.release_memory()

    def weights_off(self) -> None:
        """Leave room for the engine's KV cache as well."""
        if self._device.gives_back_memory:
            self._moves.weights_off()
            self._device.release_memory()

    def back(self) -> None:
        """Take the device again. The engine must be asleep."""
        if self._device.gives_back_memory:
            self._moves.back()
            if self.critic is not None:
                self.critic.back()
            if self._reference is not None:
                self._reference.to(self._device.torch_device())
            if self._teacher is not None:
                self._teacher.to(self._device.torch_device())
            if self.reward is not None:
                self.reward.back()

    def export_bucket(self, index: int) -> dict[str, Tensor] | None:
        """Return bucket `index` of the weights on rank 0, {} elsewhere; None past the last. A collective in ZeRO-3."""
        runs = list(buckets([weight.num_bytes for weight in self._whole_weights()], EXPORT_BYTES))
        if index >= len(runs):
            return None
        tensors = {
            name: w.detach().cpu().clone() for name, w in self._weights(runs[index], EXPORT_BYTES) if self._rank == 0
        }
        return tensors if self._rank == 0 else {}

    def export_adapters(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what PEFT's folder holds (`adapter_files`) on rank 0, None elsewhere. A collective in ZeRO-3."""
        own = exported_parameters(self._engine.module)
        with gathered(list(own.values()), is_sharded=self._stage == 3):
            if self._rank > 0:
                return None
            values = {name: p.detach().cpu().clone() for name, p in own.items()}
        return adapter_files(self._engine.module, values)

    def text_files(self) -> dict[str, bytes]:
        """Return what an exported folder holds besides weights."""
        return text_files(self._folder)

    def close(self) -> None:
        """Leave the groups in order; without it the interpreter's exit may abort."""
        if self._sender is not None:
            self._sender.close()
        if self.critic is not None:
            self.critic.leave()
        super().close()
