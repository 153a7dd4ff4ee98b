"""What each process of the console does first: nobody of its user reads it, and it hands on no secret that it has read.

Called when settings have been read. The supervisor of the embedded console keeps its environment, which the services
get from it.
"""

import os

from jobs.box.confine import unreadable

SECRETS = (
    "PITWALL_SECRET_KEY",
    "DATABASE_URL",
    "REDIS_URL",
    "RAY_AUTH_TOKEN",
    "HF_TOKEN",
    "PITWALL_METRICS_TOKEN",
    "PITWALL_OIDC_CLIENT_SECRET",
    "PITWALL_SMTP_PASSWORD",
)
"""Variables that only settings are made of; runs do not get them either."""


def harden(*, forgets: bool = True) -> None:
    """Make memory, environment and open files of this process unreadable in /proc to others of its user.

    With `forgets` the secrets leave its environment, so that nothing it starts has them unless it is given them.
    """
    unreadable()
    for name in SECRETS if forgets else ():
        os.environ.pop(name, None)
