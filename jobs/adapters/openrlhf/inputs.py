"""Rows as they are, which OpenRLHF reads by the columns that its options name."""

from jobs.adapters.inputs import Inputs, PlainInputs

PLUGIN: Inputs = PlainInputs()
