"""What tools that watch a CPU tell of threads: stacks that were sampled, and when a thread had a CPU."""

SAMPLES = "CPU samples"
"""The title of a thread's lane of sampled stacks."""
SCHEDULING = "scheduling"
"""The title of a thread's lane that says when it ran, with events of the two names below."""
ON_CPU = "on a CPU"
OFF_CPU = "not on a CPU"
