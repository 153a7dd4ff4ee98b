"""The HTTP client of tests that ask what answers on this machine."""

from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

# One for all: a client for each request, as `httpx.get` makes it, reads the machine's certificates anew (25 ms of a
# core). Like those it keeps no cookies, and no connection, since what answers is often ended by the test.
HTTP = httpx.Client(
    timeout=200,
    trust_env=False,
    limits=httpx.Limits(max_keepalive_connections=0),
    cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
)
