"""The built-in trainer and TRL learn the same: three algorithms, the same rows, settings and seeds, curve by curve."""
