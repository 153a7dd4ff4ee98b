"""One rollout engine: vLLM. Runs inside an actor (actor.py), which imports it by name."""

import gc
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.catalog.role import ROLES
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.model_files import architectures, longest_sequence, model_folder, read_json
from jobs.engine.device import load_device
from jobs.engine.roles.engine_trace import EngineTrace
from jobs.engine.roles.vllm_meter import VllmMeter
from jobs.engine.rollouts.request import GenerationRequest, SampledResponse
from profiling.garbage import without_collector
from profiling.launch_nsys import problem_of_process
from profiling.process_memory import resident_bytes, return_freed_memory


class Generator:
    """A vLLM engine whose weights come from the policy.

    On devices of the policy's ranks, which `visible_devices` names, it goes to sleep as soon as it is loaded, and
    whoever gives it the turn wakes it up.
    """

    def __init__(self, *, spec: RunSpec, device: str, eos_ids: Sequence[int], visible_devices: str = "") -> None:
        if visible_devices:  # Ray reserved none for it, so it shows it all of the node
            os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices
        takes_turns = ROLES["vllm"].share_devices(spec)
        self._spec, self._device, self._eos_ids = spec, load_device(device), list(eos_ids)
        backend = self._device.shared_transfer_backend if takes_turns else self._device.transfer_backend
        self._endless = bool(spec.knob("rollout.ignore_eos"))
        folder = model_folder(spec.model)
        longest = longest_sequence(spec, folder)
        config = read_json(folder / "config.json", field="model.id")
        self._device.prepare_rollout(spec)
        os.environ.update({"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"})
        if not problem_of_process():
            os.environ["VLLM_NVTX_SCOPES_FOR_PROFILING"] = "1"  # its own ranges beside ours in a report of nsys
        with without_collector():
            import vllm

        return_freed_memory()
        self._baseline = {"memory_baseline_bytes": float(resident)} if (resident := resident_bytes()) >= 0 else {}
        # The sampled token's log-probability after temperature is what the trainer computes from logits / temperature.
        self._sampling = vllm.SamplingParams
        _register_architecture(next(iter(architectures(config)), ""))
        gc.collect()
        gc.freeze()
        # Processes of its own can only be traced by vLLM itself, which has to know before it starts them.
        self._trace = EngineTrace() if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "1" else None
        self._llm = vllm.LLM(
            model=str(folder),
            skip_tokenizer_init=True,
            dtype=str(spec.knob("memory.precision")),
            max_model_len=longest,
            max_num_seqs=spec.int_knob("rollout.max_num_seqs"),
            tensor_parallel_size=spec.hardware.tensor_parallel_size,
            enable_prefix_caching=bool(spec.knob("rollout.enable_prefix_caching")),
            logprobs_mode="processed_logprobs",
            weight_transfer_config={"backend": backend},
            worker_extension_cls="jobs.engine.roles.rollout_worker.RolloutWorker",
            disable_log_stats=False,  # counted, never printed: see VLLM_LOGGING_LEVEL
            use_tqdm_on_load=False,
            generation_config="vllm",
            seed=spec.int_knob("train.seed") & 0x7FFFFFFF,
            **self._device.rollout_arguments(spec),
            **(self._trace.arguments() if self._trace else {}),
        )
        self._meter = VllmMeter(self._llm.get_metrics)
        self._work: dict[str, float] = {}
        if (manager := self._llm.llm_engine.logger_manager) is not None:
            manager.stat_loggers.append(self._meter)
        if takes_turns:
            self.sleep(2)

    def take_spec(self, spec: RunSpec) -> None:
        """Go on with these knobs, of which some were changed while the run trains."""
        self._spec = spec

    def generate(
        self, requests: Sequence[GenerationRequest], *, temperature: float | None = None
    ) -> list[SampledResponse]:
        """Return one completion per request, in order, at this temperature, None: the run's. 0 takes the likeliest
        token and ignores seeds.
        """
        if temperature is None:
            temperature = self._spec.float_knob("rollout.temperature")
        outputs = self._llm.generate(
            [{"prompt_token_ids": list(r.tokens)} for r in requests],
            [self._parameters(r, temperature) for r in requests],
            use_tqdm=False,
        )
        self._work = self._meter.readings()
        return [_sampled_response(output.outputs[0]) for output in outputs]

    def _parameters(self, request: GenerationRequest, temperature: float) -> Any:
        return self._sampling(
            temperature=temperature,
            top_p=1.0,
            top_k=0,
            seed=None if temperature == 0 else request.seed,
            max_tokens=self._spec.int_knob("rollout.max_new_tokens"),
            stop_token_ids=[] if self._endless else self._eos_ids,
            ignore_eos=self._endless,
            logprobs=0,
            detokenize=False,
        )

    # -- turns, where it shares devices with the policy --

    def sleep(self, level: int) -> None:
        """Give back the memory of the KV cache and of the weights: to the host (1), or for good (2).

        On CPU vLLM only pauses its scheduler and empties its prefix cache.
        """
        self._llm.sleep(level=level)

    def wake_weights(self) -> None:
        """Take memory for the weights, which come back from the host; after a sleep of level 2 they have to be sent."""
        self._llm.wake_up(tags=["weights"])

    def wake_cache(self) -> None:
        """Take memory for an empty KV cache and get ready to draw. Raises: RuntimeError if vLLM stays asleep."""
        if not self._llm.wake_up(tags=["kv_cache"]):
            raise RuntimeError("vLLM did not wake up: part of its memory is still given back.")

    # -- weights: the lifecycle calls of vLLM's weight-transfer API --

    def num_workers(self) -> int:
        """Return how many workers of this engine receive weights."""
        return self._spec.hardware.tensor_parallel_size

    def join_transfer(self, host: str, port: int, world_size: int, rank_offset: int) -> None:
        """Join the weight transfer group; returns when everyone has."""
        info = self._device.transfer_init(host=host, port=port, world_size=world_size, rank_offset=rank_offset)
        self._llm.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": info})

    def join_shared(self, source: int) -> None:
        """Get ready to read weights from memory of policy ranks, the first of which is `source`."""
        info = self._device.shared_transfer_init(source=source)
        self._llm.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": info})

    def read_update(self, filling: dict[str, Any]) -> None:
        """Load weights that policy ranks have put where this engine's workers can read them."""
        info = self._device.update_info(filling, self._spec)
        self._llm.collective_rpc("update_weights", kwargs={"update_info": info})

    def take_weights(self, metadata: dict[str, list[Any]]) -> None:
        """Take what the policy broadcasts meanwhile, and answer with it from now on. Raises: as `finish_update`."""
        self.start_update()
        self.receive_update(metadata)
        self.finish_update()

    def start_update(self) -> None:
        """Get ready for new weights."""
        self._llm.collective_rpc("start_weight_update")

    def receive_update(self, metadata: dict[str, list[Any]]) -> None:
        """Receive and load what the policy broadcasts meanwhile."""
        self._llm.collective_rpc("update_weights", kwargs={"update_info": metadata})

    def finish_update(self) -> None:
        """Put the new weights to use and forget every KV block computed with the old ones.

        Raises: RuntimeError if the prefix cache could not be emptied: answers would mix two policies.
        """
        self._llm.collective_rpc("finish_weight_update")
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM could not empty its prefix cache after a weight sync: blocks are still in use.")

    # -- traces --

    @property
    def traces_itself(self) -> bool:
        """Whether the engine's work is in other processes than this one."""
        return self._trace is not None

    def start_trace(self) -> None:
        """Begin to trace the engine's own processes."""
        assert self._trace is not None
        self._trace.start(self._llm)

    def stop_trace(self, stem: Path) -> list[Path]:
        """End it and return the files, one a process; their names begin with `stem`. Raises: FileNotFoundError."""
        assert self._trace is not None
        return self._trace.stop(self._llm, stem=stem)

    def readings(self) -> dict[str, float]:
        """Return what the device says of this process, and what vLLM says of the last completions."""
        return self._device.memory_readings() | self._baseline | self._work


def _sampled_response(output: Any) -> SampledResponse:
    logprobs = tuple(position[token].logprob for token, position in zip(output.token_ids, output.logprobs, strict=True))
    return SampledResponse(
        tokens=tuple(output.token_ids), logprobs=logprobs, is_truncated=output.finish_reason == "length"
    )


def _register_architecture(name: str) -> None:
    """Give vLLM the model class itself. By name it would inspect the class in a new process: 7 s at the first start."""
    from vllm import ModelRegistry

    registered = ModelRegistry.models.get(name)
    module, class_name = getattr(registered, "module_name", ""), getattr(registered, "class_name", "")
    if module and class_name:
        ModelRegistry.register_model(name, getattr(importlib.import_module(module), class_name))
