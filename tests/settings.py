"""Settings of the unit tests: a throw-away data directory, in-memory channel layer, tasks run in place."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

if "PITWALL_DATA_DIR" not in os.environ:  # processes that a test starts share it
    os.environ["PITWALL_DATA_DIR"] = folder = tempfile.mkdtemp(prefix="pitwall-test-")
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)

from console.settings import *  # noqa: F403

if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":  # noqa: F405
    # A file, so that threads and processes share it as they do in the product.
    DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "test.sqlite3")}  # noqa: F405
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
CELERY_TASK_ALWAYS_EAGER = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
AXES_ENABLED = False
DATA_ROOTS = [Path(tempfile.gettempdir()).resolve(), BASE_DIR]  # noqa: F405
PLANNER_PROCESSES = 0  # a test that wants them says so
RAY_ADDRESS = "http://127.0.0.1:9"  # nobody listens there: a unit test never reaches a real cluster by accident
STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # noqa: F405
