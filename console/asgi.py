"""The web process: pages and API through Django, websockets through Channels, from our own pages only."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
django.setup(set_prefix=False)  # what needs its models is imported after it

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402

from console.live.consumers import websocket_urlpatterns  # noqa: E402
from console.middleware.body_limit import BodyLimit  # noqa: E402
from console.middleware.caller_gone import WatchCaller  # noqa: E402
from console.middleware.live_body import LiveBodyHandler  # noqa: E402
from console.middleware.own_origin import OwnOriginOnly  # noqa: E402
from console.monitoring.requests import CountRequests  # noqa: E402

router = ProtocolTypeRouter(
    {
        "http": BodyLimit(WatchCaller(LiveBodyHandler())),
        "websocket": AllowedHostsOriginValidator(OwnOriginOnly(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))),
    }
)
application = CountRequests(router)
