"""Text is readable in both themes: WCAG contrast, computed from the tokens themselves."""

import re
from pathlib import Path

import pytest

from jobs.planner.result import TERMS
from profiling.phases import PHASES
from profiling.trace.category import Category

CSS = Path(__file__).resolve().parents[2] / "static" / "css"
OTHERS = ("PHASE", "MEMSET")  # phases have their own colours, memsets that of copies
STATES = ("running", "finished", "warning", "failed", "queued", "lost")


def tokens(theme: str) -> dict[str, str]:
    """Return the color tokens of a theme."""
    text = (CSS / "tokens.css").read_text()
    block = re.search(rf'\[data-bs-theme="{theme}"\] \{{(.*?)\n\}}', text, re.DOTALL)
    assert block, theme
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block[1]))


def luminance(color: str) -> float:
    """Return the relative luminance of #rrggbb (WCAG 2.2, definition of relative luminance)."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colors, 1 to 21."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_the_ratio_is_the_known_one_of_black_and_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("text", ["text", "text-2", "text-3", "accent-text", "limit"])
@pytest.mark.parametrize("ground", ["bg", "surface", "surface-2", "raised"])
def test_text_reads_on_every_ground(theme: str, text: str, ground: str) -> None:
    found = tokens(theme)

    assert contrast(found[text], found[ground]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("state", STATES)
def test_a_state_reads_on_its_own_tint_and_on_cards(theme: str, state: str) -> None:
    found = tokens(theme)

    assert contrast(found[f"state-{state}"], found[f"state-{state}-tint"]) >= 4.5
    assert contrast(found[f"state-{state}"], found["surface"]) >= 4.5
    assert contrast(found["text"], found[f"state-{state}-tint"]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_primary_button_reads_at_rest_and_under_the_pointer(theme: str) -> None:
    found = tokens(theme)

    assert contrast(found["on-accent"], found["accent"]) >= 4.5
    assert contrast(found["on-accent"], found["accent-hover"]) >= 4.5
    assert contrast(found["text"], found["accent-soft"]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_phase_has_a_color_that_its_label_reads_on(theme: str) -> None:
    found = tokens(theme)

    for phase in PHASES:
        assert contrast(found["ink"], found[phase.token]) >= 4.5, phase.key


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_that_carry_meaning_stand_out(theme: str) -> None:
    found = tokens(theme)

    for i in range(10):
        assert contrast(found[f"run-{i}"], found["surface"]) >= 3, f"run-{i}"
    terms = [name for name in found if name.startswith("memory-")]
    assert len(terms) == len(TERMS)
    for name in terms:
        assert contrast(found[name], found["surface"]) >= 3, name


def test_both_themes_define_the_same_tokens() -> None:
    assert set(tokens("light")) == set(tokens("dark"))


def test_style_sheets_use_only_tokens_that_exist() -> None:
    defined = set(re.findall(r"(--[\w-]+):", (CSS / "tokens.css").read_text()))
    for sheet in CSS.glob("*.css"):
        text = sheet.read_text()
        own = set(re.findall(r"(--[\w-]+):", text))
        used = set(re.findall(r"var\((--[\w-]+)(?=\))", text))
        assert used <= defined | own, f"{sheet.name}: {sorted(used - defined - own)}"


def test_colors_are_written_in_the_tokens_alone() -> None:
    for sheet in CSS.glob("*.css"):
        if sheet.name != "tokens.css":
            assert not re.findall(r"#[0-9a-fA-F]{3,8}\b(?![^{]*\{)", sheet.read_text()), sheet.name


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("category", [category.name.lower() for category in Category if category.name not in OTHERS])
def test_words_read_on_events_of_a_trace_and_events_on_their_lane(theme: str, category: str) -> None:
    found = tokens(theme)

    for share in (1, 0.9, 0.8):  # the shades of static/js/trace/palette.js
        assert contrast(mixed(found[f"trace-{category}"], found["surface"], share), found["ink"]) >= 4.5
    assert contrast(found[f"trace-{category}"], found["trace-lane"]) >= 3


def mixed(one: str, other: str, share: float) -> str:
    """Return a colour between two, `share` of it the first."""
    parts = [(int(c[i : i + 2], 16), w) for i in (1, 3, 5) for c, w in ((one, share), (other, 1 - share))]
    sums = [round(parts[i][0] * parts[i][1] + parts[i + 1][0] * parts[i + 1][1]) for i in (0, 2, 4)]
    return "#" + "".join(f"{value:02x}" for value in sums)
