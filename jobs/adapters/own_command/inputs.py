"""Rows of bundled data and uploads, as JSON lines with the columns of their source."""

from jobs.adapters.inputs import Inputs, PlainInputs

PLUGIN: Inputs = PlainInputs()
