"""Settings of the unit tests: a throw-away data directory, in-memory channel layer, tasks run in place."""

import os
import tempfile

os.environ.setdefault("PITWALL_DATA_DIR", tempfile.mkdtemp(prefix="pitwall-test-"))

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
RAY_ADDRESS = "http://127.0.0.1:9"  # nobody listens there: a unit test never reaches a real cluster by accident
STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # noqa: F405
