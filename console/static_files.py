"""How static files are served: each under a name that says its content, so that a browser asks for it once."""

import functools
import posixpath
import re

from django.conf import settings
from whitenoise.storage import CompressedManifestStaticFilesStorage

_IMPORT = re.compile(r"""^(?:import|export)\b[^"';]*?(?:from )?"(\.[^"]+)";""", re.MULTILINE)


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    """Also the modules that a script imports: their names are written into it, its own name follows from them."""

    support_js_module_import_aggregation = True
    max_post_process_passes = 20
    """The longest way from a page's script down to a module that imports nothing, with room."""


@functools.cache
def modules_of(script: str) -> tuple[str, ...]:
    """Return the static files that a script imports, directly or not: a page asks for all of them at once."""
    (folder,) = settings.STATICFILES_DIRS
    modules: dict[str, None] = {}
    left = [script]
    while left:
        name = left.pop(0)
        path = folder / name
        for imported in _IMPORT.findall(path.read_text(encoding="utf-8")) if path.is_file() else ():
            module = posixpath.normpath(posixpath.join(posixpath.dirname(name), imported))
            if module not in modules:
                modules[module] = None
                left.append(module)
    return tuple(modules)
