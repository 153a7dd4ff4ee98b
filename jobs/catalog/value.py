"""What a knob can hold."""

Scalar = float | int | str | bool
Value = Scalar | None
"""None is "not set": the trainer decides."""
