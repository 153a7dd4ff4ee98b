"""Every setting, read from the environment in one place. Nothing here starts or connects to anything."""

import contextlib
import os
import secrets
from pathlib import Path

import environ
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from console.sign_in.oidc_settings import OidcMisread, OidcSettings
from jobs.accounts.group_mapping import GroupsMisread, read_groups
from jobs.catalog.trainer_environment import TrainersMisread, read_environments
from jobs.cluster.loopback import host_of, is_loopback

env = environ.FileAwareEnv()

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(env.str("PITWALL_DATA_DIR", default=str(BASE_DIR / ".pitwall"))).resolve()
DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
MIN_METRICS_TOKEN = 24  # characters


def _secret_key() -> str:
    """Return the given secret key, or the one kept in the data directory, made on first use."""
    configured = env.str("PITWALL_SECRET_KEY", default="")
    if configured:
        return configured
    path = DATA_DIR / "secret_key"
    if not path.exists():
        fresh = DATA_DIR / f"secret_key.{secrets.token_hex(4)}"
        fresh.touch(mode=0o600)
        with fresh.open("w") as file:
            file.write(secrets.token_urlsafe(48))
            file.flush()
            os.fsync(file.fileno())  # whole before it has its name, whatever dies
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(fresh)  # the first process to come wins, all read the same key
        fresh.unlink()
    stored = path.read_text().strip()
    if len(stored) < 32:
        text = f"{path} is empty or cut off. Put a backup of it there, or delete it: then all sign in again."
        raise ImproperlyConfigured(text)
    return stored


def _trainers(text: str) -> str:
    """Return PITWALL_TRAINERS. Raises: ImproperlyConfigured with a sentence if it makes no sense."""
    try:
        read_environments(text)
    except TrainersMisread as error:
        raise ImproperlyConfigured(str(error)) from error
    return text


def _oidc() -> OidcSettings:
    """Return what is said of an OpenID Connect provider. Raises: ImproperlyConfigured with a sentence."""
    try:
        return OidcSettings(
            issuer=env.str("PITWALL_OIDC_ISSUER", default="").strip(),
            client_id=env.str("PITWALL_OIDC_CLIENT_ID", default=""),
            client_secret=env.str("PITWALL_OIDC_CLIENT_SECRET", default=""),
            name=env.str("PITWALL_OIDC_NAME", default=""),
            scopes=env.str("PITWALL_OIDC_SCOPES", default="openid profile email"),
            groups_claim=env.str("PITWALL_OIDC_GROUPS_CLAIM", default="groups"),
            name_claim=env.str("PITWALL_OIDC_NAME_CLAIM", default="preferred_username"),
            groups=read_groups(env.str("PITWALL_OIDC_GROUPS", default="")),
            creates_accounts=env.bool("PITWALL_OIDC_CREATE", default=True),
            session_hours=env.float("PITWALL_OIDC_SESSION_HOURS", default=12.0),
        )
    except (OidcMisread, GroupsMisread) as error:
        raise ImproperlyConfigured(str(error)) from error


def _metrics_token() -> str:
    """Return PITWALL_METRICS_TOKEN. Raises: ImproperlyConfigured for one that could be guessed."""
    token: str = env.str("PITWALL_METRICS_TOKEN", default="").strip()
    if token and len(token) < MIN_METRICS_TOKEN:
        text = f"PITWALL_METRICS_TOKEN has {len(token)} characters; {MIN_METRICS_TOKEN} or more are needed."
        raise ImproperlyConfigured(f"{text} `openssl rand -hex 32` makes a good one.")
    return token


def _one_of(name: str, *allowed: str) -> str:
    """Return a variable that takes one of a few words, the first by default. Raises: ImproperlyConfigured."""
    value: str = env.str(name, default=allowed[0])
    if value not in allowed:
        raise ImproperlyConfigured(f"{name} is {value!r}. Use one of {', '.join(allowed)}.")
    return value


SECRET_KEY = _secret_key()
DEBUG = env.bool("PITWALL_DEBUG", default=False)
HOST = env.str("PITWALL_HOST", default="127.0.0.1")  # the address that the web process listens on
PORT = env.int("PITWALL_PORT", default=8000)
PUBLIC_URL = env.str("PITWALL_PUBLIC_URL", default=f"http://127.0.0.1:{PORT}")  # where people reach the console
RUNNER_URL = env.str("PITWALL_RUNNER_URL", default=PUBLIC_URL)  # and where runners do, if not by the same address
_HERE = ["127.0.0.1", "localhost", "[::1]", host_of(PUBLIC_URL), host_of(RUNNER_URL)]
ALLOWED_HOSTS = env.list("PITWALL_ALLOWED_HOSTS", default=_HERE)
CSRF_TRUSTED_ORIGINS = env.list("PITWALL_TRUSTED_ORIGINS", default=[])

# Outside services; where one is not named, `manage.py up` starts an embedded one and names it here.
REDIS_URL = env.str("REDIS_URL", default=f"unix://{DATA_DIR}/redis.sock?db=0")
RAY_ADDRESS = env.str("RAY_ADDRESS", default="http://127.0.0.1:8265")  # of the Job API
RAY_AUTH_TOKEN = env.str("RAY_AUTH_TOKEN", default="")
# Run directories, on the cluster's nodes: this machine's data directory means nothing on others.
REMOTE_RUN_ROOT = "/tmp/pitwall-runs"  # noqa: S108 (there is no other folder that every node is sure to have)
RUN_ROOT = env.str("PITWALL_RUN_ROOT", default=str(DATA_DIR / "runs") if is_loopback(RAY_ADDRESS) else REMOTE_RUN_ROOT)
RUNNER_PYTHON = env.str("PITWALL_RUNNER_PYTHON", default="python")  # the interpreter on the cluster that has the engine
HF_TOKEN = env.str("HF_TOKEN", default="")  # goes with the runs that fetch from the hub
TRAINERS = _trainers(env.str("PITWALL_TRAINERS", default=""))  # where the cluster has other trainers
FILES_DIR = DATA_DIR / "files"  # uploads and artifacts
MAX_TRACE_BYTES = env.int("PITWALL_MAX_TRACE_BYTES", default=8 << 30)  # of one uploaded trace file
MAX_PROJECT_TRACE_BYTES = env.int("PITWALL_MAX_PROJECT_TRACE_BYTES", default=256 << 30)  # of all uploaded traces of one
TRACE_IMPORT_SECONDS = env.int("PITWALL_TRACE_IMPORT_SECONDS", default=1800)
MAX_UPLOAD_BYTES = env.int("PITWALL_MAX_UPLOAD_BYTES", default=1 << 30)
TRASH_DAYS = env.int("PITWALL_TRASH_DAYS", default=30)  # that what is deleted can be taken back; projects may differ
METRICS_TOKEN = _metrics_token()  # opens /metrics to Prometheus; "": only API tokens do
TRIAL = _one_of("PITWALL_TRIAL", "editors", "admins", "off")  # who may try code before a launch
# Where a spec's paths are read for previews; where Ray is elsewhere they mean nothing here unless somebody says so.
_DATA_ROOTS = [str(Path.home()), "/data", "/datasets", "/models", "/mnt", "/srv", "/scratch"]
DATA_ROOTS = [
    Path(root).expanduser().resolve()
    for root in env.list("PITWALL_DATA_ROOTS", default=_DATA_ROOTS if is_loopback(RAY_ADDRESS) else [])
]
HF_TOKEN = env.str("HF_TOKEN", default="")  # for previews of what is on the hub
MAX_PROJECT_UPLOAD_BYTES = env.int("PITWALL_MAX_PROJECT_UPLOAD_BYTES", default=256 << 30)  # of all data files of one
# The larger of both is kept free on the disk of FILES_DIR (jobs/storage/floor.py).
MIN_FREE_BYTES = env.int("PITWALL_MIN_FREE_BYTES", default=512 << 20)
MIN_FREE_PERCENT = env.float("PITWALL_MIN_FREE_PERCENT", default=0.0)
PLANNER_PROCESSES = env.int("PITWALL_PLANNER_PROCESSES", default=2)  # for long searches; 0: in the web process itself
QUESTIONS_AT_ONCE = env.int("PITWALL_QUESTIONS_AT_ONCE", default=2)  # expensive ones of one person (console/budget.py)
AUDIT_DAYS = env.int("PITWALL_AUDIT_DAYS", default=400)  # how long rows of the audit are kept; 0: for ever
STOP_GRACE_SECONDS = env.int("PITWALL_STOP_GRACE_SECONDS", default=90)  # before Ray is asked to end a stopping run

# Alerts that leave the console (docs/operate/alerts.md).
SMTP_HOST = env.str("PITWALL_SMTP_HOST", default="")  # "": no mail
SMTP_TLS = _one_of("PITWALL_SMTP_TLS", "starttls", "tls", "none")
SMTP_PORT = env.int("PITWALL_SMTP_PORT", default={"starttls": 587, "tls": 465, "none": 25}[SMTP_TLS])
SMTP_USER = env.str("PITWALL_SMTP_USER", default="")
SMTP_PASSWORD = env.str("PITWALL_SMTP_PASSWORD", default="")
SMTP_FROM = env.str("PITWALL_SMTP_FROM", default=f"Pitwall <pitwall@{host_of(PUBLIC_URL)}>")
# Hosts, addresses and networks that webhooks may go to although they are not public, or not https.
WEBHOOK_HOSTS = env.list("PITWALL_WEBHOOK_HOSTS", default=[])

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "axes",
    "csp",
    "channels",
    "jobs",
    "console",
]

MIDDLEWARE = [
    "console.middleware.response_headers.ResponseHeadersMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "console.middleware.trailing_slash.TrailingSlashMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "console.views.errors.RefusalMiddleware",
    "console.middleware.caller_address.CallerAddressMiddleware",
    "axes.middleware.AxesMiddleware",
]

AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
AXES_ENABLED = True
AXES_FAILURE_LIMIT = 10
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_CLIENT_IP_CALLABLE = "console.sign_in.address_lock.caller"
AXES_LOCKOUT_CALLABLE = "console.views.account.signin.locked_out"
CSRF_FAILURE_VIEW = "console.views.errors.csrf_failure"
# Wrong passwords from one address, whatever the names, after which it is locked for the same time as a name is.
ADDRESS_FAILURE_LIMIT = env.int("PITWALL_ADDRESS_FAILURE_LIMIT", default=100)
LOCKOUT_MINUTES = env.int("PITWALL_LOCKOUT_MINUTES", default=15)
AXES_COOLOFF_TIME = LOCKOUT_MINUTES / 60  # hours
HAS_PASSWORDS = env.bool("PITWALL_LOCAL_PASSWORDS", default=True)  # else links and the provider alone sign in
OIDC = _oidc()
LOGIN_URL = "signin"
LOGIN_REDIRECT_URL = "home"

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "django.template.context_processors.i18n",
                "console.views.frame.frame",
            ],
        },
    }
]

DATABASES = {"default": env.db("DATABASE_URL", default=f"sqlite:///{DATA_DIR}/pitwall.sqlite3")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",  # deferred ones fail with "database is locked" when two processes write
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
        # As much mapped as SQLite maps at most: series are megabytes of blobs, read twice as quickly so.
        "PRAGMA cache_size=-32768; PRAGMA mmap_size=2147418112;",
    }
# Threads that live on (of websockets, of tasks) keep theirs: to open one costs more than most of what is asked.
DATABASES["default"]["CONN_MAX_AGE"] = 60
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# The channel layer carries small control messages only; bulk data has its own path (console/live/hub.py).
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": REDIS_URL, "socket_timeout": None, "max_connections": 4000}]},
    }
}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "console" / "locale"]
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = Path(env.str("PITWALL_STATIC_ROOT", default=str(DATA_DIR / "static")))
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "console.static_files.HashedStaticFiles"},
}

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "connect-src": [SELF],
        "font-src": [SELF],
        "img-src": [SELF, "data:"],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "pitwall_session"
IS_TLS = env.bool("PITWALL_TLS", default=False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_TLS
# Proxies (addresses or networks) whose X-Forwarded-For is believed; from anybody else it is only a claim.
TRUSTED_PROXIES = env.list("PITWALL_TRUSTED_PROXIES", default=["127.0.0.1"] if IS_TLS else [])
if IS_TLS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# Seconds for which a browser that came by TLS once comes by nothing else; and whether we, not the proxy, send who comes
# without TLS there. Health checks and runners may come by the inner address, which has none.
SECURE_HSTS_SECONDS = env.int("PITWALL_HSTS_SECONDS", default=3600 if IS_TLS else 0)
SECURE_SSL_REDIRECT = env.bool("PITWALL_TLS_REDIRECT", default=False)
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^ingest/"]
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 << 20
# Bodies of requests (console/middleware/body_limit.py): seconds that may pass between two pieces of one, and how many
# may be under way from one address, and long ones from one person or run.
MAX_CONNECTIONS = env.int("PITWALL_MAX_CONNECTIONS", default=2000)  # of this web process, websockets included
SOCKETS_OF_PERSON = env.int("PITWALL_SOCKETS_OF_PERSON", default=50)  # live pages, in this web process
SOCKETS_OF_RUN = env.int("PITWALL_SOCKETS_OF_RUN", default=500)  # that follow one run or trace
BODY_STALL_SECONDS = env.float("PITWALL_BODY_STALL_SECONDS", default=30.0)
BODIES_OF_ADDRESS = env.int("PITWALL_BODIES_OF_ADDRESS", default=64)
BODIES_OF_PERSON = env.int("PITWALL_BODIES_OF_PERSON", default=16)
FILE_UPLOAD_TEMP_DIR = DATA_DIR / "incoming"  # uploads while they come: on the volume that is to hold them
FILE_UPLOAD_TEMP_DIR.mkdir(mode=0o700, exist_ok=True)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "filters": {"links": {"()": "console.middleware.log_redaction.HideLinks"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["links"]}},
    "root": {"handlers": ["stderr"], "level": env.str("PITWALL_LOG_LEVEL", default="INFO")},
    "loggers": {name: {"level": "WARNING"} for name in ("httpx", "axes", "authlib", "celery", "kombu", "uvicorn")}
    | {"django.request": {"level": "ERROR"}},  # who asked for what is not here has been told so
}
