"""Attacks, a file for each part of the console; importing this package gathers them."""

from tests.proofs.security.attacks import accounts, answers, bodies, files, load, repository, trials

__all__ = ["accounts", "answers", "bodies", "files", "load", "repository", "trials"]
