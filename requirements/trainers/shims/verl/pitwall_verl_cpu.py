"""Lets verl's SFT trainer run on CPU: a platform "cpu" for verl, chosen by VERL_PLATFORM=cpu and by nothing else.

verl finds it as a plugin (entry point group verl.plugins). It registers the platform class, registers verl's FSDP
engine for the device cpu, and gives the process group gloo alone, because verl joins gloo and the platform's own
backend for two different devices and here both are the CPU.
"""

import contextlib
import os
import types


def _device_module():
    import torch

    module = types.ModuleType("torch_cpu_for_verl")
    nothing = ("set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all", "reset_peak_memory_stats")
    zero = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    for name in nothing:
        setattr(module, name, lambda *_arguments, **_more: None)
    for name in zero:
        setattr(module, name, lambda *_arguments, **_more: 0)
    module.current_device = lambda: "cpu"
    module.get_device_name = lambda *_arguments: "CPU"  # as verl calls it where it computes floating point operations
    module.device_count = lambda: 1
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module.mem_get_info = lambda *_arguments: (0, 0)
    module.get_rng_state = torch.get_rng_state
    module.set_rng_state = torch.set_rng_state
    module.Stream, module.stream, module.current_stream = torch.cpu.Stream, torch.cpu.stream, torch.cpu.current_stream
    return module


def register():
    """Tell verl of the platform."""
    import torch
    from verl.plugin.platform.platform_base import PlatformBase
    from verl.plugin.platform.platform_manager import PlatformRegistry

    torch_cpu = _device_module()

    class PlatformCPU(PlatformBase):
        """One CPU, gloo, no GPU resource of Ray."""

        device_name = "cpu"
        vendor_name = "cpu"
        device_module = torch_cpu

        def is_available(self):
            return True

        def is_platform_available(self, use_smi_check=False):
            return False  # never by detection

        def current_device(self):
            return "cpu"

        def device_count(self):
            return 1

        def set_device(self, device_index):
            return None

        def synchronize(self, device_index=None):
            return None

        def manual_seed(self, seed):
            torch.manual_seed(seed)

        def manual_seed_all(self, seed):
            torch.manual_seed(seed)

        def set_allocator_settings(self, settings):
            return None

        def empty_cache(self):
            return None

        def get_device_capability(self, device_index=0):
            return None, None

        def communication_backend_name(self):
            return "gloo"

        def visible_devices_envvar(self):
            return "CUDA_VISIBLE_DEVICES"

        @contextlib.contextmanager
        def nvtx_range(self, msg):
            yield

        def cudart(self):
            return None

        def profiler_start(self):
            return None

        def profiler_stop(self):
            return None

        def ray_resource_name(self):
            return "CPU"

        def ray_resource_options(self, num_gpus):
            return {"num_cpus": num_gpus}

        def ray_noset_envvars(self):
            return []

        def is_ipc_supported(self):
            return False

        def rollout_env_vars(self):
            return {}

    PlatformRegistry.register(platform="cpu")(PlatformCPU)
    _use_gloo_alone(torch)
    _register_engine_when_asked()


def _use_gloo_alone(torch):
    theirs = torch.distributed.init_process_group

    def init_process_group(backend=None, *arguments, **more):
        return theirs("gloo" if backend and "gloo" in backend else backend, *arguments, **more)

    torch.distributed.init_process_group = init_process_group


def _register_engine_when_asked():
    """verl registers its engines when verl.workers.engine is imported, which imports more than a plugin may do here."""
    import sys

    class Finder:
        """Lets the others find the module of FSDP engines, and registers one for cpu once it is executed."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            """Return the spec of that one module."""
            if name != "verl.workers.engine.fsdp.transformer_impl":
                return None
            sys.meta_path.remove(Finder)
            import importlib.util

            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                engine = module.EngineRegistry._engines["language_model"]["fsdp"]["cuda"]
                module.EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(
                    engine
                )

            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder)


if os.environ.get("VERL_PLATFORM") == "cpu":
    register()
