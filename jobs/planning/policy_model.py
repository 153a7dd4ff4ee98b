"""Which model the planner is asked about: its shape by id, by what somebody pasted, or by the files of a folder or hub.

A model is read from a config.json that somebody pasted, the catalog of known models, or, for people who may launch,
the config.json of a folder or a hub repository (jobs.preflight.preview.read_config).
"""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from jobs.catalog.sentence import sentence_of
from jobs.catalog.spec.runspec import ModelSource
from jobs.models import Project
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import ModelShape, ShapeUnreadable, read_shape


class PlanRefused(ValueError):
    """There is no answer; `field` names what is wrong (a field of the spec, or of what was asked beside it).

    `needs_config`: the model is not known here, and its config.json would tell. `is_unread`: it was not looked for yet.
    """

    def __init__(self, field: str, message: str, *, needs_config: bool = False, is_unread: bool = False) -> None:
        self.field = field
        self.needs_config = needs_config
        self.is_unread = is_unread
        super().__init__(message)


def policy_shape(
    model: ModelSource,
    *,
    config: Mapping[str, Any] | None = None,
    project: Project | None = None,
    may_read: bool,
    reads: bool = True,
) -> tuple[ModelShape, str]:
    """Return the shape of a spec's model, and a sentence on how it was found if that is an assumption, else "".

    `config` goes before what `model` says; of what runs wrote only those of `project` are read. A hub id that
    the catalog knows is not asked for; a folder is read if `may_read`, and where it cannot be, one that is named like a
    known repository is taken to hold that model.
    Without `reads` only what was read a while ago is taken. Raises: PlanRefused.
    """
    if config is not None:
        return shape_of_config(config, name=model.id), ""
    if model.kind != "path":
        try:
            return shape_of(model.id), ""
        except LookupError as unknown:
            problem = sentence_of(unknown)
    else:
        problem = _("The folder of the model is not read for viewers. Give its config.json with the spec.")
    if may_read:
        from jobs.preflight.client import TrialFailed  # what reads files; a model that is known needs none
        from jobs.preflight.preview import kept_config, read_config

        try:
            read = (read_config if reads else kept_config)(model, project=project)
            if read is None:
                raise PlanRefused("model.id", _("The model's config.json is being read."), is_unread=True)
            return shape_of_config(read, name=model.id), ""
        except TrialFailed as failed:
            problem = failed.message
    if model.kind == "path":
        name = model.id.rstrip("/").rpartition("/")[2]
        try:
            note = _("%(path)s cannot be read from here; its name suggests %(name)s.")
            return shape_of(name), note % {"path": model.id, "name": name}
        except LookupError:
            pass
    raise PlanRefused("model.id", problem, needs_config=True)


def shape_of_config(config: Any, *, name: str) -> ModelShape:
    """Return the shape that a config.json describes. Raises: PlanRefused, naming the key."""
    if not isinstance(config, Mapping):
        raise PlanRefused("config", _('A config.json is a JSON object, as in {"model_type": …}.'))
    try:
        return read_shape(config, name=name)
    except ShapeUnreadable as unreadable:
        raise PlanRefused("config", sentence_of(unreadable)) from unreadable
