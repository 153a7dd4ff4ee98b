"""Icons, states and numbers in templates, written as the pages write them everywhere."""

from datetime import datetime

from django import template
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy, pgettext

from console.guide.parts import KnobLink
from console.labels import catalog, numbers
from console.static_files import modules_of
from console.time_zone import time_zone
from profiling.counted import counted

register = template.Library()
for number in (numbers.grouped, numbers.figure, numbers.duration, numbers.clock, numbers.interval, numbers.size):
    register.filter(number)
register.filter(numbers.growth)
register.filter(numbers.about_days)
register.filter("counted", counted, is_safe=True)  # {% filter counted %}: a text without markup

STATE_ICONS = {
    "queued": "clock",
    "starting": "circle-half-2",
    "running": "player-play",
    "stopping": "square",
    "stopped": "square",
    "finished": "check",
    "failed": "x",
    "lost": "wifi-off",
}
STATE_WORDS = {
    "queued": gettext_lazy("queued"),
    "starting": gettext_lazy("starting"),
    "running": gettext_lazy("running"),
    "stopping": gettext_lazy("stopping"),
    "stopped": gettext_lazy("stopped"),
    "finished": gettext_lazy("finished"),
    "failed": gettext_lazy("failed"),
    "lost": gettext_lazy("lost contact"),
}


@register.simple_tag
def icon(name: str) -> SafeString:
    """Draw a Tabler icon of the sprite; it is decoration, so a word or an aria-label must stand beside it."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', static("icons/sprite.svg"), name
    )


@register.simple_tag
def module_links(script: str) -> SafeString:
    """Let the browser ask for all modules of a script at once, not for each when it has read who imports it."""
    links = ((static(name),) for name in modules_of(script))
    return format_html_join("\n", '<link rel="modulepreload" href="{}">', links)


@register.simple_tag
def state_badge(state: str, is_lost_contact: bool = False) -> SafeString:
    """Draw the badge of a run's state: icon, word and tint."""
    shown = _shown_state(state, is_lost_contact)
    word = STATE_WORDS.get(shown, shown)
    mark = icon(STATE_ICONS.get(shown, "help-circle"))
    return format_html('<span class="state" data-state="{}">{}{}</span>', shown, mark, word)


@register.filter
def state_word(state: str, is_lost_contact: bool = False) -> str:
    """Return the word of a run's state alone, for a page that fetches no icon."""
    shown = _shown_state(state, is_lost_contact)
    return str(STATE_WORDS.get(shown, shown))


def _shown_state(state: str, is_lost_contact: bool) -> str:
    return "lost" if is_lost_contact and state in ("starting", "running", "stopping") else state


@register.simple_tag
def knob_link(knob: KnobLink) -> SafeString:
    """Link to a knob's page of the guide; a name that is no knob stands as code."""
    if not knob.id:
        return format_html("<code>{}</code>", knob.label)
    return format_html('<a href="{}" title="{}">{}</a>', reverse("guide-knob", args=[knob.id]), knob.id, knob.label)


@register.simple_tag(takes_context=True)
def when(context: template.Context, moment: datetime | str | None) -> SafeString:
    """Write a moment (or its ISO 8601 text): the time today, the weekday in a week, else the date; all on hover.

    It is told in the reader's time zone, as scripts tell theirs.
    """
    if not moment:
        return format_html("{}", "—")
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    zone = time_zone(context.get("request"))
    local = moment.astimezone(zone)
    days = (timezone.now().astimezone(zone).date() - local.date()).days
    if days == 0:
        text = f"{local:%H:%M}"
    elif 0 < days < 7:
        text = date_format(local, "D")
    else:
        text = date_format(local, pgettext("date format: day and month", "j M"))
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', local.isoformat(), f"{local:%Y-%m-%d %H:%M:%S %Z}", text
    )


@register.filter
def color_index(color: int) -> int:
    """Return which of the ten run colors it is."""
    return color % 10


@register.filter
def metric_label(name: str) -> str:
    """Return the label of a metric."""
    return catalog.metric_label(name)
