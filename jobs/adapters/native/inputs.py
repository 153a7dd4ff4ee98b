"""Rows as they are, which the engine reads from the source itself."""

from jobs.adapters.inputs import Inputs, PlainInputs

PLUGIN: Inputs = PlainInputs()
