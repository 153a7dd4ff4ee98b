"""Every websocket × every caller: default deny, as of addresses (test_access_matrix.py)."""

import pytest
from asgiref.sync import sync_to_async

from tests.console.access_rules import SOCKETS
from tests.console.live.test_live import Page
from tests.console.test_access_matrix import CALLERS, Scene
from tests.services import Valkey


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
@pytest.mark.parametrize("address", sorted(SOCKETS))
async def test_a_websocket_lets_members_in_and_nobody_else(address: str, valkey: Valkey) -> None:
    scene = await sync_to_async(Scene)()
    path = scene.fill(address) + f"?{SOCKETS[address]}"
    for caller, role in CALLERS.items():
        client = await sync_to_async(scene.session)(caller)
        cookie = client.cookies["pitwall_session"].value if caller != "signed out" else ""
        page = await Page(path, cookie).open()
        if role is None:
            assert await page.close_code() == (4401 if caller == "signed out" else 4404), f"{path} as {caller}"
        else:
            assert (await page.read())["type"] in ("heartbeat", "run", "trace"), f"{path} as {caller}"
            await page.leave()
