"""Find the runs that a filter lets through, in order, in the database.

Two ways, because neither is fast for everything. Where one part of the filter, or all of it, leaves at most `FEW` runs,
these are fetched and the rest is asked of them. Otherwise the index of the value that sorts is walked, the filter is
asked at each step, and the walk ends when there are enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, Exists, OuterRef, Q, QuerySet, When

from jobs.models import TRASHED, Project, RunFact, RunKey, RunLine
from jobs.runs.find.asked import RunFilter, sort_key
from jobs.runs.find.fields import ALWAYS
from jobs.runs.find.terms import AllOf, AnyOf, HasTag, HasText, HasWord, IsCompared, NotSo, Term

FEW = 2000
_AT_ONCE = 2000  # ids in one statement
_NEW = Q(stale__gt=0, indexed_at=None)  # runs whose values nobody has written yet
CLOSE = 1e-9  # numbers within it, relatively, are equal


@dataclass(frozen=True, slots=True)
class _SameKey:
    """Comparisons of one key that all hold: a range of its index, which can be short where each of them is long.

    A run has one value of a key, so they hold of the same row.
    """

    parts: tuple[IsCompared, ...]


@dataclass(frozen=True, slots=True)
class RunSearch:
    """A question about runs of a project: a filter, and the key that sorts."""

    project: Project
    filters: RunFilter
    keys: dict[tuple[str, str], int]
    sort: tuple[str, str]
    is_down: bool

    def lines(self, *, most: int | None) -> list[int]:
        """Return the ids of at most so many lines (`RunLine`) that pass, in order.

        Runs without the value that sorts come last, the newest of them first.
        """
        if self.filters.ids:
            return self._sorted(
                self._few(RunLine.objects.filter(run__in=self.filters.ids).values_list("pk", flat=True))
            )
        few = self._candidates()
        if few is not None:
            return self._sorted(self._few(few))[:most]
        lines: list[int] = []
        for segment in self._segments():
            rest = None if most is None else most - len(lines)
            lines += segment[:rest]
            if most is not None and len(lines) >= most:
                break
        return lines

    # ---- few runs ------------------------------------------------------------------------------------------------

    def _candidates(self) -> list[int] | None:
        """Return the lines that one part of the filter leaves, or all of it, if they are few, else None."""
        for part in sorted(self._parts(), key=_is_scan):
            source = self._source(part)
            if source is not None and len(source) <= FEW:
                return source
        # Parts that are all broad can still exclude one another. Where they do not, this ends as soon as it has seen
        # enough; where they do, it spares a walk along the order, which asks for two rows at each step.
        if len(self._parts()) > 1:
            together = list(
                self._base().filter(self._passes(self.filters.term, "", "pk")).values_list("pk", flat=True)[: FEW + 1]
            )
            return together if len(together) <= FEW else None
        return None

    def _source(self, term: Term | _SameKey) -> list[int] | None:
        """Return at most `FEW` + 1 lines among which are all that pass; None where no index says."""
        if isinstance(term, AnyOf):
            union: set[int] = set()
            for part in term.parts:
                some = self._source(part)
                if some is None or len(some) > FEW:
                    return None
                union.update(some)
            return sorted(union)
        rows: QuerySet[Any, int] | None = None
        if isinstance(term, HasWord):
            rows = self._base().filter(text__contains=term.text).values_list("pk", flat=True)
        elif isinstance(term, HasText) and term.field == "state":
            rows = self._base().filter(state__in=term.values).values_list("pk", flat=True)
        elif isinstance(term, HasText) and term.field == "id":
            rows = self._base().filter(_begins("run_id", term.values)).values_list("pk", flat=True)
        elif isinstance(term, (HasTag, HasText, IsCompared, _SameKey)):
            facts = self._facts(term)
            rows = (
                facts.values_list("line_id", flat=True)
                if facts is not None
                else RunLine.objects.none().values_list("pk", flat=True)
            )
        return None if rows is None else list(rows[: FEW + 1])

    def _few(self, lines: Sequence[int] | QuerySet[Any, int]) -> list[int]:
        rows = RunLine.objects.filter(project=self.project, pk__in=lines)
        if self.filters.ids:
            rows = rows.filter(shelf__lt=TRASHED)
        else:
            rows = rows.filter(shelf=int(self.filters.is_archived))
        return list(rows.filter(self._passes(self.filters.term, "", "pk")).values_list("pk", flat=True))

    def _sorted(self, lines: list[int]) -> list[int]:
        """Return few lines in order, sorted here."""
        rows = RunFact.objects.filter(key=self.keys.get(self.sort), line__in=lines)
        values = {
            line: (number is None, number or 0.0, text or "", line)
            for line, number, text in rows.values_list("line_id", "number", "text")
        }
        having = sorted((line for line in lines if line in values), key=values.__getitem__, reverse=self.is_down)
        return having + sorted((line for line in lines if line not in values), reverse=True)

    # ---- many runs -----------------------------------------------------------------------------------------------

    def _segments(self) -> list[QuerySet[Any, int]]:
        """Return what is walked one after the other: numbers, texts (downwards: texts, numbers), runs without value."""
        key, sign = self.keys.get(self.sort), "-" if self.is_down else ""
        passes = self._passes(self.filters.term, "", "pk", is_step=True)
        without = self._base().filter(passes).order_by("-pk")
        if key is None:
            return [without.values_list("pk", flat=True)]
        has_value = RunFact.objects.filter(line=OuterRef("pk"), key=key)
        there = RunFact.objects.filter(key=key, line__shelf=int(self.filters.is_archived))
        there = there.filter(self._passes(self.filters.term, "line__", "line_id", is_step=True))
        # What the sorting key itself must be: the walk begins and ends there, and runs without it do not pass.
        own = [part for part in self._parts() if isinstance(part, IsCompared | _SameKey) and _key_of(part) == self.sort]
        for part in own:
            there = there.filter(_held_against(part))
        walks = [
            there.filter(**{f"{column}__isnull": False}).order_by(f"{sign}{column}", f"{sign}line_id")
            for column in (("text", "number") if self.is_down else ("number", "text"))
        ]
        matches = [walk.values_list("line_id", flat=True) for walk in walks]
        has_all = self.sort[0] == "field" and self.sort[1] in ALWAYS and not self._base().filter(_NEW).exists()
        if own or has_all:
            return matches
        return [*matches, without.filter(~Exists(has_value)).values_list("pk", flat=True)]

    def _parts(self) -> Sequence[Term | _SameKey]:
        """Return what must all hold."""
        term = self.filters.term
        return _together(term.parts) if isinstance(term, AllOf) else (term,)

    def _base(self) -> QuerySet[RunLine]:
        return RunLine.objects.filter(project=self.project, shelf=int(self.filters.is_archived))

    # ---- conditions ----------------------------------------------------------------------------------------------

    def _passes(self, term: Term | _SameKey, prefix: str, line: str, *, is_step: bool = False) -> Q:
        """Return the condition on a row whose line's columns begin with `prefix` and whose line's id is `line`.

        `is_step` keeps it a question of each row that a walk comes to, where the database could join instead.
        """
        if isinstance(term, (AllOf, AnyOf)):
            whole = Q()
            for part in _together(term.parts) if isinstance(term, AllOf) else term.parts:
                condition = self._passes(part, prefix, line, is_step=is_step)
                whole = whole & condition if isinstance(term, AllOf) else whole | condition
            return whole
        if isinstance(term, NotSo):
            condition = self._passes(term.part, prefix, line, is_step=is_step)
            # PostgreSQL makes an anti-join of NOT EXISTS, for which it expects one row and reads all: 15 times as long.
            return Q(Case(When(condition, then=False), default=True)) if is_step else ~condition
        if isinstance(term, HasWord):
            return Q(**{f"{prefix}text__contains": term.text})
        if isinstance(term, HasText) and term.field == "state":
            return Q(**{f"{prefix}state__in": term.values})
        if isinstance(term, HasText) and term.field == "id":
            return _begins(f"{prefix}run_id", term.values)
        facts = self._facts(term)
        if facts is None:  # no run of the project has such a value
            return Q(pk__in=[])
        return Q(Exists(facts.filter(line=OuterRef(line))))

    def _facts(self, term: HasTag | HasText | IsCompared | _SameKey) -> QuerySet[RunFact] | None:
        """Return the values that fulfil the term; None where no run of the project has a value of that name."""
        key = self.keys.get(_key_of(term))
        if key is None:
            return None
        rows = RunFact.objects.filter(key=key)
        if isinstance(term, HasTag):
            return rows.filter(number__isnull=False)
        if isinstance(term, HasText):
            if not term.is_part:
                return rows.filter(text__in=term.values)
            matches = Q()
            for value in term.values:
                matches |= Q(text__contains=value)
            return rows.filter(matches, text__isnull=False)
        return rows.filter(_held_against(term))


def search(project: Project, filters: RunFilter, sort: str) -> RunSearch:
    """Return the question, its names looked up. Raises: FilterInvalid if `sort` names nothing."""
    by = sort_key(sort)
    needed = {by, *_keys_in(filters.term)}
    rows = RunKey.objects.filter(project=project, name__in={name for _kind, name in needed})
    keys = {(kind, name): pk for kind, name, pk in rows.values_list("kind", "name", "pk") if (kind, name) in needed}
    return RunSearch(project, filters, keys, by, sort.startswith("-"))


def run_ids(lines: Sequence[int]) -> list[str]:
    """Return the ids of the runs of these lines, in their order."""
    by_line: dict[int, str] = {}
    for start in range(0, len(lines), _AT_ONCE):
        by_line.update(RunLine.objects.filter(pk__in=lines[start : start + _AT_ONCE]).values_list("pk", "run_id"))
    return [by_line[line] for line in lines if line in by_line]


def _keys_in(term: Term) -> set[tuple[str, str]]:
    if isinstance(term, (AllOf, AnyOf)):
        return {key for part in term.parts for key in _keys_in(part)}
    if isinstance(term, NotSo):
        return _keys_in(term.part)
    return set() if isinstance(term, HasWord) else {_key_of(term)}


def _together(parts: Sequence[Term]) -> Sequence[Term | _SameKey]:
    """Return the parts with comparisons of one key as one, in the place of the first of them."""
    joined: dict[object, Term | _SameKey] = {}
    for number, part in enumerate(parts):
        key: object = _key_of(part) if isinstance(part, IsCompared) else number
        earlier = joined.get(key)
        if isinstance(part, IsCompared) and isinstance(earlier, IsCompared | _SameKey):
            before = earlier.parts if isinstance(earlier, _SameKey) else (earlier,)
            joined[key] = _SameKey((*before, part))
        else:
            joined[key] = part
    return tuple(joined.values())


def _key_of(term: HasTag | HasText | IsCompared | _SameKey) -> tuple[str, str]:
    if isinstance(term, _SameKey):
        return _key_of(term.parts[0])
    if isinstance(term, HasTag):
        return "tag", term.tag
    return ("field", term.field) if isinstance(term, HasText) else (term.kind, term.name)


def _held_against(term: IsCompared | _SameKey) -> Q:
    if isinstance(term, _SameKey):
        whole = Q()
        for part in term.parts:
            whole &= _held_against(part)
        return whole
    value = term.value
    if isinstance(value, str):
        there = Q(text__isnull=False)
        return there & (Q(text=value) if term.symbol == "=" else ~Q(text=value))
    there = Q(number__isnull=False)
    if term.symbol in ("=", "!="):
        # As math.isclose has it: |a - b| <= CLOSE * max(|a|, |b|), solved for a.
        bounds = (value * (1 - CLOSE), value * (1 + CLOSE), value / (1 - CLOSE), value / (1 + CLOSE))
        low, high = min(bounds), max(bounds)
        near = Q(number__gte=low, number__lte=high)
        return there & (near if term.symbol == "=" else ~near)
    lookup = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}[term.symbol]
    return there & Q(**{f"number__{lookup}": value})


def _begins(column: str, values: Sequence[str]) -> Q:
    matches = Q()
    for value in values:
        matches |= Q(**{f"{column}__startswith": value})
    return matches


def _is_scan(term: Term | _SameKey) -> bool:
    """Return True for what is matches by reading every line of the project: it is tried last."""
    if isinstance(term, AnyOf):
        return any(_is_scan(part) for part in term.parts)
    return isinstance(term, HasWord) or (isinstance(term, HasText) and (term.is_part or term.field == "id"))
