"""Headers that every answer of the console has: who may keep it, what its page may use, who may embed it."""

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

NO_STORE = "no-store"
_KEPT = ("no-store", "immutable", "public")
"""Words of an answer that says by itself how long it may be kept: versioned tiles, static files, translations."""
_NOT_USED = ("accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "magnetometer", "microphone")
_NOT_USED_EITHER = ("midi", "payment", "publickey-credentials-get", "screen-wake-lock", "serial", "usb")
PERMISSIONS = ", ".join(f"{name}=()" for name in (*_NOT_USED, *_NOT_USED_EITHER))


class ResponseHeadersMiddleware:
    """Let no browser and no proxy keep what somebody was shown: *Back* after a sign-out shows nothing."""

    sync_capable = async_capable = True

    def __init__(self, get_response: object) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> object:
        """Answer, with the headers."""
        if self._is_async:
            return self._answer(request)
        return _with_headers(self.get_response(request))  # type: ignore[operator]

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        return _with_headers(await self.get_response(request))  # type: ignore[operator]


def _with_headers(answer: HttpResponseBase) -> HttpResponseBase:
    if not any(word in answer.get("Cache-Control", "") for word in _KEPT):
        answer["Cache-Control"] = NO_STORE
    answer.setdefault("Permissions-Policy", PERMISSIONS)
    answer.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    return answer
