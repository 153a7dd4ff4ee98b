"""The API's answer on a diffusion transformer as text for a terminal."""

from typing import Any


def diffusion_text(answer: dict[str, Any]) -> str:
    """Return the answer as a table, a line per accelerator, and what was assumed."""
    lines = [
        f"{answer['model']}: {answer['parameters']:,} parameters, {answer['latent_tokens']:,} latent and"
        f" {answer['text_tokens']:,} text tokens a sample"
    ]
    for each in answer["options"]:
        pool, step = each["pool"], each["step"]
        fewest = " / ".join(str(need["devices"] or "-") for need in each["needs"])
        line = f"{each['accelerator']:<14} {each['answer']:<8} fewest GPUs {fewest}"
        if pool is not None and step is not None:
            peak = max(phase["total"] for phase in pool["phases"])
            line += f"; on {pool['num_devices']}: {peak / 2**30:.1f} of {pool['limit'] / 2**30:.1f} GiB"
            line += f", step {step['middle']:,.0f} s ({step['low']:,.0f} to {step['high']:,.0f})"
        lines.append(line)
    lines.append("fewest GPUs: nothing on the host / states between phases / the optimizer and its step")
    notes = dict.fromkeys(note for each in answer["options"] for note in each["notes"])
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])
