# syntax=docker/dockerfile:1
# Two images: `console` (web, worker, ingest, reconcile: no torch, no Ray) and `engine` (a Ray node that trains; the code
# of a run reaches it through Ray, so it holds packages only). Packages are locked and hashed (requirements/*.lock).
ARG PYTHON_VERSION=3.11
FROM python:${PYTHON_VERSION}-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PATH=/srv/pitwall/venv/bin:$PATH
RUN groupadd --gid 10001 pitwall \
    && useradd --uid 10001 --gid pitwall --no-log-init --home-dir /srv/pitwall --shell /usr/sbin/nologin pitwall \
    && install -d -m 0755 /srv/pitwall \
    && install -d -m 0700 -o pitwall -g pitwall /srv/pitwall/data /srv/pitwall/runs /srv/pitwall/cache
WORKDIR /srv/pitwall/app

FROM base AS console-packages
COPY requirements requirements
RUN --mount=type=cache,target=/tmp/pip,sharing=locked \
    PIP_CACHE_DIR=/tmp/pip python requirements/install.py console --for-image --venv /srv/pitwall/venv

FROM base AS engine-packages
# cpu or gpu: the two builds of vLLM cannot share an environment.
ARG ENGINE=cpu
COPY requirements requirements
RUN --mount=type=cache,target=/tmp/pip,sharing=locked \
    set=engine; if [ "$ENGINE" = gpu ]; then set=gpu; fi; \
    PIP_CACHE_DIR=/tmp/pip python requirements/install.py "$set" --for-image --venv /srv/pitwall/venv

FROM base AS engine
COPY --from=engine-packages /srv/pitwall/venv /srv/pitwall/venv
ENV HOME=/srv/pitwall/cache HF_HOME=/srv/pitwall/cache/huggingface \
    RAY_USAGE_STATS_ENABLED=0 RAY_DISABLE_IMPORT_WARNING=1
USER pitwall
WORKDIR /srv/pitwall/runs
EXPOSE 6379 8265
CMD ["ray", "start", "--help"]

FROM base AS console
COPY --from=console-packages /srv/pitwall/venv /srv/pitwall/venv
COPY manage.py ./
COPY static static
COPY templates templates
COPY profiling profiling
COPY jobs jobs
COPY console console
# Outside of the data volume, so that an image always serves its own.
ENV PITWALL_DATA_DIR=/srv/pitwall/data PITWALL_STATIC_ROOT=/srv/pitwall/static TMPDIR=/srv/pitwall/data
RUN python -m jobs.catalog.tables && python -m console.translations
RUN PITWALL_DATA_DIR=/tmp/build python manage.py collectstatic --noinput --verbosity 0 \
    && PITWALL_DATA_DIR=/tmp/build python manage.py openapi --keep > /dev/null && rm -r /tmp/build
USER pitwall
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
CMD ["python", "manage.py", "web", "--host", "0.0.0.0"]
