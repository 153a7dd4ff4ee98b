"""Static files: names that say the content of scripts and of what they import, and which modules a script needs."""

from pathlib import Path

from django.core.files.base import ContentFile

from console.static_files import HashedStaticFiles, modules_of


def _served(folder: Path, leaf: str) -> tuple[str, str]:
    """Return under which name a script is served, and its text, whose module imports another one: `leaf`."""
    storage = HashedStaticFiles(location=folder)
    texts = {
        "js/page.js": 'import {\n  a,\n  b,\n} from "./part/a.js";\na(b);\n',
        "js/part/a.js": 'import { c } from "../c.js";\n/** @import { T } from "./t" */\nexport { c as a, c as b };\n',
        "js/c.js": leaf,
    }
    for name, text in texts.items():
        (folder / name).unlink(missing_ok=True)
        storage.save(name, ContentFile(text.encode()))
    for _, _, problem in storage.post_process({name: (storage, name) for name in texts}):
        assert not isinstance(problem, Exception), problem
    name = storage.stored_name("js/page.js")
    return name, (folder / name).read_text()


def test_a_script_has_another_name_when_a_module_far_below_has_changed(tmp_path: Path) -> None:
    before, text = _served(tmp_path, "export const c = 1;\n")
    after, _ = _served(tmp_path, "export const c = 2;\n")

    assert before != after
    assert 'from "./part/a.js"' not in text
    assert 'from "./part/a.' in text


def test_all_modules_of_a_script_are_found_once() -> None:
    found = modules_of("js/run.js")

    assert {"js/run/chart-tab.js", "js/charts/chart.js", "vendor/uplot/uPlot.esm.js", "js/dom.js"} <= set(found)
    assert len(found) == len(set(found))
    assert modules_of("js/missing.js") == ()
