"""The catalogue's texts in the reader's language: knobs, rules, recipes, symptoms, metrics. It knows no gettext itself.

gettext's programs cannot see TOML files nor the names of fields, so `make messages` writes their texts into a module in
build/, where they can. Sources, ids, options and expressions are shown as they are, and so is everything that the API
answers.
"""

import ast
from collections.abc import Iterator
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

from django.utils.translation import gettext as _

from console.labels.rules import rule_name
from jobs.adapters.adapter import WHY, adapter
from jobs.catalog import advice, device_table
from jobs.catalog.algorithm import algorithms
from jobs.catalog.flag import FORMS
from jobs.catalog.knob import Knob, knobs
from jobs.catalog.metric import metric, metrics
from jobs.catalog.overview import TOPICS, overview_charts
from jobs.catalog.recipe import recipes
from jobs.catalog.rules import condition
from jobs.catalog.rules.rule import KINDS, LEVELS, rules
from jobs.catalog.rules.symptom import symptoms
from jobs.catalog.sentence import in_words, sentence_of
from jobs.catalog.spec.runspec import SECTIONS
from jobs.catalog.trainer import trainers
from jobs.planner.can_it_run.plans import FURTHER_WAYS, METHODS, ON_HOST
from jobs.planner.constant import shipped_constants
from jobs.planner.result import POOL_WORDS
from jobs.planner.search.advice import TOGETHER
from jobs.planner.search.layouts import GOALS
from jobs.planner.search.plan_changes import plan_changes
from jobs.planner.validity import REASONS
from profiling.diagnosis.evaluators import NO_PHASE
from profiling.diagnosis.finding import FOLDER as DIAGNOSIS
from profiling.diagnosis.finding import QUESTIONS, RECORD
from profiling.diagnosis.finding import rules as diagnosis_rules
from profiling.phases import BY_KEY, PHASES
from profiling.recorders.recorder import load_tool, tool_names


def knob_label(knob_id: str) -> str:
    """Return what people call a knob."""
    return _(knobs()[knob_id].label)


def field_label(name: str) -> str:
    """Return what people call a field of the spec that is no knob: data.eval_share is "Data eval share"."""
    return _(_field_text(name))


def knob_allowed(knob: Knob) -> str:
    """Say in words what a knob takes."""
    return in_words(knob.allowed(), _)


def error_text(error: Exception) -> str:
    """Say what an error says."""
    return in_words(sentence_of(error), _)


def metric_label(name: str) -> str:
    """Return what people call a metric; an unknown one has its name."""
    label = metric(name).label
    return _(label) if label != name else name


def phase_label(key: str) -> str:
    """Return what people call a phase; an unknown one has its key."""
    return _(BY_KEY[key].label) if key in BY_KEY else key


def metric_words() -> dict[str, dict[str, object]]:
    """Return what is known of every metric by name, JSON-able; `unit` is a key, `unit_text` the word for it."""
    by_name = {}
    for name, info in metrics().items():
        words = {
            "label": _(info.label),
            "definition": _(info.definition),
            "unit_text": _(info.unit) if info.unit else "",
        }
        by_name[name] = asdict(info) | words
    return by_name


def catalog_texts() -> list[str]:
    """Return every text of the catalog, the planner and the diagnosis rules once, in the order of the files."""
    return [text for text in dict.fromkeys(_texts()) if text]


def module_text() -> str:
    """Return a Python module in which xgettext finds these texts."""
    return "".join(_line(text) for text in catalog_texts())


def _line(text: str) -> str:
    # "30 % slower" is no placeholder, whatever xgettext thinks
    hint = "# xgettext:no-python-format\n" if "%" in text else ""
    return f"{hint}gettext_noop({_quoted(text)})\n"


def _field_text(name: str) -> str:
    return name.replace(".", " ").replace("_", " ").capitalize()


def _texts() -> Iterator[str]:
    for knob in knobs().values():
        yield from (knob.label, knob.unit, knob.help, *knob.effects.values())
    for algorithm in algorithms().values():
        yield from (algorithm.label, algorithm.help)
    for trainer in trainers().values():
        yield from (trainer.label, trainer.help, *trainer.untold.values())
    for info in metrics().values():
        yield from (info.label, info.unit, info.definition, info.healthy_source)
        yield from (source for _range, source in info.healthy_of.values())
    yield from (phase.label for phase in PHASES)
    yield from TOPICS.values()
    for chart in overview_charts():
        yield from (chart.title, chart.hint, chart.hint_at_zero, *(line.label for line in chart.lines))
    yield from _guide_texts()
    yield from _planner_texts()
    yield from _diagnosis_texts()
    for folder in ("jobs.catalog", "jobs.adapters", "jobs.planner"):
        yield from templates(folder)
    yield from WHY
    for trainer in trainers().values():
        for version in trainer.versions:
            yield from (option.why for option in adapter(trainer.id).option_names(version=version))
    for section, cls in SECTIONS.items():
        yield from (_field_text(f"{section}.{field}") for field in cls.model_fields)


def templates(package: str) -> Iterator[str]:
    """Yield the templates of all sentences that the modules of a package make (`jobs.catalog.sentence`).

    Raises: ValueError, naming the place, for one that does not stand in the code as a text.
    """
    for file in sorted(Path(str(files(package))).rglob("*.py")):
        for scope in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(scope, (ast.Module, ast.FunctionDef)):
                yield from _templates_of(scope, file.name)


def _templates_of(scope: ast.Module | ast.FunctionDef, where: str) -> Iterator[str]:
    """Yield those that the scope itself makes, not the functions in it."""
    inner = [node for statement in scope.body for node in _own_nodes(statement)]
    texts: dict[str, list[str]] = {}
    for node in inner:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                texts.setdefault(name, []).append(text)
    for node in inner:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Sentence":
            match node.args[0]:
                case ast.Constant(value=str(text)):
                    yield text
                case ast.Name(id=name) if name in texts:
                    yield from texts[name]
                case ast.Attribute(attr="label") if not node.keywords:
                    pass  # the catalogue's own, which is gathered from there
                case _ if node.keywords:
                    raise ValueError(f"{where}, line {node.lineno}: write the sentence's template here as a text.")


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                yield from _own_nodes(statement)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _own_nodes(child)


def _guide_texts() -> Iterator[str]:
    grades = (advice.EVIDENCE, device_table.EVIDENCE)
    for words in (FORMS, advice.QUESTIONS, *grades, KINDS, condition.TEXTS):
        yield from words.values()
    yield from (*advice.EVIDENCE, *LEVELS)
    for rule in rules().values():
        yield from (rule_name(rule.id), rule.message, rule.why)
    for recipe in recipes().values():
        yield from (recipe.label, recipe.help, *recipe.prerequisites, recipe.hardware, recipe.version)
    for piece in advice.advice().values():
        yield from (piece.title, piece.when, *(change.to for change in piece.changes), *piece.effect.values())
    for row in device_table.device_table().values():
        yield from (row.model, row.device, row.notes)
    for symptom in symptoms().values():
        yield from (symptom.title, symptom.signal, *symptom.causes)
        yield from (remedy.title for remedy in symptom.remedies)


def _planner_texts() -> Iterator[str]:
    for words in (REASONS, GOALS, ON_HOST, FURTHER_WAYS):
        yield from words.values()
    yield from (method.label for method in METHODS.values())
    yield from (TOGETHER, *(plan_change.title for plan_change in plan_changes()))
    yield from POOL_WORDS.values()
    for constant in shipped_constants().all():
        yield from (constant.label, constant.unit, constant.reason)


def _diagnosis_texts() -> Iterator[str]:
    yield from (*QUESTIONS.values(), *RECORD.values())
    for rule in diagnosis_rules().values():
        yield from (rule.title, rule.definition, rule.source, rule.fires, rule.clear, rule.advice)
    yield NO_PHASE
    yield from _texts_of_missing()
    for tool in map(load_tool, tool_names()):
        yield from (tool.about, *(shown.because for shown in tool.shows.values()))


def _texts_of_missing() -> Iterator[str]:
    """Yield what rules say where they lack something: `InsufficientData(text=...)`, as a text or as a name for one."""
    for file in sorted(Path(str(files(DIAGNOSIS))).glob("*.py")):
        for scope in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(scope, ast.FunctionDef | ast.Module):
                continue
            nodes = list(ast.walk(scope))
            named = {
                target.id: node.value.value
                for node in nodes
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
                for target in node.targets
                if isinstance(target, ast.Name) and isinstance(node.value.value, str)
            }
            for node in nodes:
                for keyword in node.keywords if isinstance(node, ast.Call) else ():
                    if keyword.arg in ("text", "missing"):
                        match keyword.value:
                            case ast.Constant(value=str(text)):
                                yield text
                            case ast.Name(id=name) if name in named:
                                yield named[name]


def _quoted(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'
