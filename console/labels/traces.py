"""Words and numbers of what the analysis says of traces, for pages."""

import re
from collections.abc import Mapping

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from profiling.analysis.flops import prefixed

KINDS: Mapping[str, Promise] = {
    "compute": gettext_lazy("Compute"),
    "communication": gettext_lazy("Exposed communication"),
    "copy": gettext_lazy("Copies"),
    "dependency": gettext_lazy("Waiting for another stream"),
    "profiler": gettext_lazy("Profiler"),
    "collector": gettext_lazy("Garbage collector"),
    "data_wait": gettext_lazy("Waiting for data"),
    "capture": gettext_lazy("Capturing graphs"),
    "synchronisation": gettext_lazy("Synchronisation"),
    "launch": gettext_lazy("Host-bound"),
    "python": gettext_lazy("Python code"),
    "system": gettext_lazy("Operating system"),
    "waiting": gettext_lazy("Waiting for others"),
    "program": gettext_lazy("Between operators"),
    "native": gettext_lazy("Other code on the CPU"),
    "off_cpu": gettext_lazy("Not on a CPU"),
    "unattributed": gettext_lazy("Idle, cause not recorded"),
    "not_recorded": gettext_lazy("Not covered by the recording"),
}
DEFINITIONS: Mapping[str, Promise] = {
    "compute": gettext_lazy("A kernel computes; without a device, an operator runs on the CPU."),
    "communication": gettext_lazy("A collective runs and nothing computes, so that nothing hides it."),
    "copy": gettext_lazy("Memory is copied or set, and neither a kernel nor a collective runs."),
    "dependency": gettext_lazy(
        "The next work was launched already: the device waits for another stream or an event, or begins a kernel."
    ),
    "profiler": gettext_lazy("The device is idle while the profiler does its own work."),
    "collector": gettext_lazy("The device is idle during a pause of Python's garbage collector."),
    "data_wait": gettext_lazy("The device is idle inside the data loader, or a phase of waiting for data."),
    "capture": gettext_lazy(
        "The device is idle while the CPU puts launches into a graph, to run later, or makes the graph ready."
    ),
    "synchronisation": gettext_lazy("The device is idle while the CPU waits for it: it learns of the end too late."),
    "launch": gettext_lazy(
        "The device is idle while the CPU prepares its work: in an operator, a call that launches, or between calls."
    ),
    "waiting": gettext_lazy("The worker is in no phase while another role or rank is."),
    "python": gettext_lazy("Idle for 1 ms or more while the CPU is in a function of the program; frames name it."),
    "system": gettext_lazy(
        "Idle while the CPU is in a call of the operating system: a file, a lock, a wait for another thread."
    ),
    "program": gettext_lazy(
        "Without a device: the CPU is between two operators less than 1 ms apart, or in a range that was recorded."
    ),
    "native": gettext_lazy(
        "Idle while a thread that launches runs on the CPU in what no range or call covers; samples name its functions."
    ),
    "off_cpu": gettext_lazy("Idle while the thread that launches has no CPU: it sleeps, or waits for one."),
    "unattributed": gettext_lazy("Idle, and nothing that was recorded tells why."),
    "not_recorded": gettext_lazy(
        "No trace covers this time, or it holds only ranges, or launches without the device's work: only the phase is "
        "known. Record operators, and the device."
    ),
}
WITHOUT_STACKS = gettext_lazy(
    "Idle, and nothing that was recorded tells why. Record with stacks: nothing is known of Python."
)
"""The definition of `unattributed` where no frames were recorded."""
CHANGES: Mapping[str, Promise] = {
    "added": gettext_lazy("added"),
    "removed": gettext_lazy("removed"),
    "slower": gettext_lazy("slower"),
    "faster": gettext_lazy("faster"),
    "same": gettext_lazy("same"),
}
ITEMS: Mapping[str, Promise] = {
    "kernel": gettext_lazy("kernel"),
    "communication": gettext_lazy("collective"),
    "copy": gettext_lazy("copy"),
    "memset": gettext_lazy("memset"),
    "operator": gettext_lazy("operator"),
    "function": gettext_lazy("function"),
}


_FUNCTOR = re.compile(r"\w*(?:[Ff]unctor|Ops?\b|_kernel_cuda)\w*")


def time_text(ns: float | None) -> str:
    """Return a time in the unit that suits it: 1.24 s, 77.5 ms, 12.0 µs, 340 ns; "—" for none."""
    if ns is None:
        return "—"
    size = abs(ns)
    for limit, scale, unit in ((1e9, 1e9, "s"), (1e6, 1e6, "ms"), (1e3, 1e3, "µs")):
        if size >= 0.9995 * limit:  # what three digits round up to it
            digits = 2 if size < 9.995 * scale else 1 if size < 99.95 * scale else 0
            return _minus(f"{ns / scale:,.{digits}f}") + f" {unit}"
    return _minus(f"{ns:.0f}") + " ns"


def change_text(ns: float) -> str:
    """Return a difference of times with its sign: "+1.2 ms", "−340 µs"; 0 without one."""
    return ("+" if ns > 0 else "") + time_text(ns) if round(ns) else "0"


def share_text(share: float | None) -> str:
    """Return a share in per cent: 12.3 %, < 0.1 %; "—" for none."""
    if share is None:
        return "—"
    if 0 < abs(share) < 0.001:
        return _("< 0.1 %")
    return _minus(f"{100 * share:.1f}") + " %"


def operations_text(flops: float | None) -> str:
    """Return floating-point operations, or those per second, with a prefix: 2.07 T."""
    return "—" if flops is None else prefixed(flops)


def worker_text(role: str, rank: int) -> str:
    """Return what a worker is called: "policy 0", "vLLM 1", "rank 3" where nobody told its role."""
    if not role:
        return _("rank %(rank)s") % {"rank": max(rank, 0)}
    name, _slash, part = role.partition("/")
    whole = f"{'vLLM' if name == 'vllm' else name} {max(rank, 0)}"
    return _("%(worker)s, process %(n)s") % {"worker": whole, "n": int(part) + 1} if part.isdigit() else whole


def short_name(name: str) -> str:
    """Return a kernel's name without its parameters, and of its template arguments the one that tells it apart.

    All of it where nothing is left.
    """
    letters, depth = [], 0
    functor = _FUNCTOR.search(name)
    for letter in name.removeprefix("void ").replace("(anonymous namespace)::", ""):
        if letter in "<(" and not name.startswith(("Memcpy", "Memset")):
            depth += 1
        if not depth:
            letters.append(letter)
        if letter in ">)" and depth:
            depth -= 1
    short = "".join(letters).strip()
    return f"{short}<{functor[0]}>" if short and functor and functor[0] not in short else short or name


def _minus(text: str) -> str:
    return text.replace("-", "−", 1)
