"""What goes out: once for each event and channel, tried again, signed, and nowhere but where it may."""

import json
import socket
from collections.abc import Iterator
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from django.utils import timezone

from jobs.alerts import outbox
from jobs.alerts.channel_list import MAX_TESTS, delete_channel, make_channel, send_test
from jobs.alerts.channels.webhook import signature
from jobs.alerts.handing import NotDelivered
from jobs.alerts.http import check_url, post
from jobs.alerts.incidents import apply, mute
from jobs.alerts.kinds import AlertRefused
from jobs.alerts.outbox import Sweeper, deliver
from jobs.alerts.sighting import Sighting
from jobs.alerts.subscriptions import subscribe, watch
from jobs.models import AlertChannel, AlertIncident, AlertMessage, AlertRule, AuditEvent, Membership, Project
from tests.jobs.alerts.watchman import Receiver
from tests.rows import make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def rule(project: Project) -> AlertRule:
    return AlertRule.objects.create(project=project, kind="lost_contact", name="Lost", severity="critical")


def opened(rule: AlertRule, object_id: str = "x", **more: Any) -> AlertIncident:
    """Open an incident, and return it."""
    data = {"what": "lost_contact", "name": "demo <b>&", "minutes": 2}
    apply([Sighting(rule=rule, object_id=object_id, is_on=True, data=data, **more)], rules=[rule], now=timezone.now())
    return AlertIncident.objects.get(rule=rule, object_id=object_id)


def channel_of(rule: AlertRule, kind: str, address: str) -> tuple[AlertChannel, str]:
    channel, secret = make_channel(kind=kind, name=kind, address=address, actor=make_user(), project=rule.project)
    rule.channels.add(channel)
    return channel, secret


def send(incident: AlertIncident) -> AlertMessage:
    """Send the incident's newest message now, however long it was to wait."""
    message = incident.messages.latest("pk")
    AlertMessage.objects.filter(pk=message.pk, state="pending").update(next_at=timezone.now())
    deliver(message.pk)
    message.refresh_from_db()
    return message


class Mailbox:
    """A mail server: what it took, and what it answers."""

    def __init__(self) -> None:
        self.mails: list[Envelope] = []
        self.answer = "250 OK: queued as 7"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        self.mails.append(envelope)
        return self.answer

    def read(self) -> EmailMessage:
        (mail,) = self.mails
        parsed = message_from_bytes(bytes(mail.content or b""), policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        return parsed


@pytest.fixture
def mailbox(settings: Any) -> Iterator[Mailbox]:
    mailbox = Mailbox()

    def sign_in(_server: SMTP, _session: Session, _envelope: Envelope, _how: str, data: Any) -> AuthResult:
        is_right = isinstance(data, LoginPassword) and (data.login, data.password) == (b"pitwall", b"a secret")
        return AuthResult(success=is_right, handled=is_right)

    with socket.create_server(("127.0.0.1", 0)) as free:  # the controller wants to know its port beforehand
        port = free.getsockname()[1]
    server = Controller(mailbox, hostname="127.0.0.1", port=port, authenticator=sign_in, auth_require_tls=False)
    server.start()
    settings.SMTP_HOST, settings.SMTP_PORT = "127.0.0.1", port
    settings.SMTP_TLS, settings.SMTP_USER, settings.SMTP_PASSWORD = "none", "pitwall", "a secret"
    settings.SMTP_FROM = "Pitwall <pitwall@example.com>"
    yield mailbox
    server.stop(no_assert=True)


def test_a_webhook_gets_the_facts_signed_and_under_a_key(rule: AlertRule, receiver: Receiver) -> None:
    _channel, secret = channel_of(rule, "webhook", receiver.url)

    incident = opened(rule)
    message = send(incident)

    ((headers, body),) = receiver.requests
    assert message.state == "sent"
    assert message.answer == "200 ok"
    assert headers["pitwall-signature"] == f"v1={signature(secret, headers['pitwall-timestamp'], receiver.raw)}"
    assert headers["idempotency-key"] == body["id"] == message.key
    assert (body["event"], body["severity"], body["incident"]) == ("opened", "critical", incident.pk)
    assert body["title"] == "demo <b>& lost contact"
    assert body["url"].endswith(f"/alerts/{incident.pk}")
    assert not deliver(message.pk), "it is out"


def test_mail_goes_to_a_real_server_and_its_answer_is_kept(rule: AlertRule, mailbox: Mailbox) -> None:
    channel_of(rule, "email", "team@example.com")

    message = send(opened(rule))

    mail = mailbox.read()
    assert (message.state, message.answer) == ("sent", "250 OK: queued as 7")
    assert mailbox.mails[0].rcpt_tos == ["team@example.com"]
    assert mail["Message-ID"] == f"<{message.key}@example.com>"
    assert mail["Subject"] == "[Pitwall] demo <b>& lost contact"
    assert "For 2 minutes by now." in mail.get_content()


@pytest.mark.parametrize(
    ("answer", "state"), [("451 greylisted", "pending"), ("550 no such mailbox", "failed"), ("250 fine", "sent")]
)
def test_what_a_mail_server_says_decides_if_it_is_tried_again(
    rule: AlertRule, mailbox: Mailbox, answer: str, state: str
) -> None:
    channel_of(rule, "email", "team@example.com")
    mailbox.answer = answer

    message = send(opened(rule))

    assert (message.state, message.answer) == (state, answer)


def test_a_password_that_the_mail_server_refuses_is_told_without_it(
    rule: AlertRule, mailbox: Mailbox, settings: Any
) -> None:
    channel_of(rule, "email", "team@example.com")
    settings.SMTP_PASSWORD = "not the secret"

    message = send(opened(rule))

    assert message.state == "pending"
    assert "refused the console's sign-in" in message.answer
    assert "not the secret" not in message.answer


def test_slack_and_discord_get_their_own_form_and_nobody_is_mentioned(rule: AlertRule, receiver: Receiver) -> None:
    channel_of(rule, "slack", receiver.url)
    channel_of(rule, "discord", receiver.url)

    for message in opened(rule).messages.order_by("channel__kind"):
        deliver(message.pk)

    discord, slack = (body for _headers, body in receiver.requests)
    assert slack["text"] == "demo &lt;b&gt;&amp; lost contact"
    assert slack["blocks"][0]["text"]["text"].endswith("*\nFor 2 minutes by now.")
    assert discord["allowed_mentions"] == {"parse": []}
    assert discord["embeds"][0]["title"] == "demo <b>& lost contact"


@pytest.mark.parametrize(
    ("status", "headers", "state", "wait"),
    [
        (500, {}, "pending", 10),
        (429, {"Retry-After": "120"}, "pending", 120),
        (404, {}, "failed", 0),
        (302, {"Location": "http://127.0.0.1:9/"}, "failed", 0),
    ],
)
def test_an_answer_decides_if_and_when_it_is_tried_again(
    rule: AlertRule, receiver: Receiver, status: int, headers: dict[str, str], state: str, wait: int
) -> None:
    channel_of(rule, "webhook", receiver.url)
    receiver.status, receiver.headers = status, headers

    message = send(opened(rule))

    assert (message.state, message.answer) == (state, f"{status} ok")
    assert len(receiver.requests) == 1, "no redirect is followed"
    assert not message.is_repeat
    if wait:
        assert 0 <= wait - (message.next_at - timezone.now()).total_seconds() < 5


def test_waits_grow_and_come_to_an_end(rule: AlertRule, receiver: Receiver) -> None:
    channel_of(rule, "webhook", receiver.url)
    receiver.status = 503
    incident = opened(rule)
    waits = []
    for _ in range(outbox.MAX_TRIES):
        message = send(incident)
        waits.append(round((message.next_at - timezone.now()).total_seconds(), -1))

    assert waits[:4] == [10, 30, 90, 270]
    assert max(waits) == 3600
    assert message.state == "failed"
    assert set(receiver.keys) == {message.key}, "the same key each time"


def test_a_message_whose_worker_died_before_it_left_is_sent_once(rule: AlertRule, receiver: Receiver) -> None:
    channel_of(rule, "webhook", receiver.url)
    incident = opened(rule)
    message = incident.messages.get()
    assert outbox._claim(message.pk, timezone.now()), "a worker took it, and was killed"

    assert not deliver(message.pk), "its lease holds"
    AlertMessage.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert deliver(message.pk)

    ((_headers, body),) = receiver.requests
    assert body["is_repeat"] is False


def test_one_whose_worker_died_while_it_left_comes_again_under_its_key_and_says_so(
    rule: AlertRule, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel_of(rule, "webhook", receiver.url)
    message = opened(rule).messages.get()

    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "_Outcome", die)  # the receiver has it, the database does not know
        with pytest.raises(Killed):
            deliver(message.pk)
    AlertMessage.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    deliver(message.pk)

    assert [body["is_repeat"] for _headers, body in receiver.requests] == [False, True]
    assert set(receiver.keys) == {message.key}


def test_a_worker_that_stood_still_until_another_took_over_sends_nothing(rule: AlertRule, receiver: Receiver) -> None:
    channel_of(rule, "webhook", receiver.url)
    message = opened(rule).messages.get()
    real = outbox._send

    def stand_still(message: AlertMessage, hand_over: Any) -> Any:
        AlertMessage.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
        outbox._send = real  # type: ignore[assignment]
        assert deliver(message.pk), "the other one"
        return real(message, hand_over)

    outbox._send = stand_still  # type: ignore[assignment]
    try:
        deliver(message.pk)
    finally:
        outbox._send = real
    message.refresh_from_db()
    assert message.state == "sent"
    assert len(receiver.requests) == 1


def test_without_any_worker_the_reconciler_sends(rule: AlertRule, receiver: Receiver, settings: Any) -> None:
    channel_of(rule, "webhook", receiver.url)
    opened(rule)
    asked: list[int] = []
    sweeper, now = Sweeper(), timezone.now()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "ask_worker", asked.append)
        for seconds in (0, 2, 4, 22):
            sweeper.sweep(now + timedelta(seconds=seconds))

    assert len(asked) == 1
    assert len(receiver.requests) == 1


def test_it_is_told_that_it_resolved_where_it_was_told_that_it_opened(rule: AlertRule, receiver: Receiver) -> None:
    channel_of(rule, "webhook", receiver.url)
    incident = opened(rule)
    now = timezone.now()
    for seconds in (0, 60):
        apply([], rules=[rule], now=now + timedelta(seconds=seconds))

    assert list(incident.messages.order_by("pk").values_list("event", flat=True)) == ["opened", "resolved"]


def test_what_is_muted_is_told_when_the_mute_is_over_if_it_still_lasts(rule: AlertRule, receiver: Receiver) -> None:
    channel_of(rule, "webhook", receiver.url)
    user, now = make_user(), timezone.now()
    mute(project=rule.project, rule=rule, minutes=10, user=user, now=now)
    incident = opened(rule)
    assert not incident.messages.exists()

    again = Sighting(rule=rule, object_id="x", is_on=True, data=incident.data)
    apply([again], rules=[rule], now=now + timedelta(minutes=11))

    assert incident.messages.count() == 1


@pytest.mark.parametrize("scope", ["incident", "run", "rule", "project"])
def test_each_mute_silences_what_it_names_and_nothing_else(project: Project, rule: AlertRule, scope: str) -> None:
    run = make_run(project)
    incident = opened(rule, "a", run=run)
    other_rule = AlertRule.objects.create(project=make_project(), kind="waiting", name="other")
    other = opened(other_rule, "b")
    what: dict[str, Any] = {"incident": {"incident": incident}, "rule": {"rule": rule}, "project": {}}.get(
        scope, {"incident": incident, "is_run": True}
    )

    made = mute(project=project, minutes=5, user=make_user(), now=timezone.now(), **what)

    assert made is not None
    assert made.is_about(incident)
    assert not made.is_about(other)


@pytest.mark.parametrize(
    ("runs", "is_author", "is_watching", "count"),
    [
        ("mine", True, False, 1),
        ("mine", False, True, 0),
        ("watched", False, True, 1),
        ("watched", False, False, 0),
        ("all", False, False, 1),
    ],
)
def test_people_are_told_of_what_they_subscribed_to(
    project: Project, rule: AlertRule, receiver: Receiver, runs: str, is_author: bool, is_watching: bool, count: int
) -> None:
    ada = make_user("ada", project=project, role="viewer")
    run = make_run(project, user=ada if is_author else None)
    watch(run, user=ada, is_on=is_watching)
    own, _secret = make_channel(kind="webhook", name="mine", address=receiver.url, actor=ada, owner=ada)
    subscribe(user=ada, project=project, runs=runs, severity="warning", is_console=False, channels=[own.pk])

    assert opened(rule, run=run).messages.count() == count


def test_who_left_the_project_is_told_nothing_more(project: Project, rule: AlertRule, receiver: Receiver) -> None:
    ada = make_user("ada", project=project)
    own, _secret = make_channel(kind="webhook", name="mine", address=receiver.url, actor=ada, owner=ada)
    subscribe(user=ada, project=project, runs="all", severity="info", is_console=False, channels=[own.pk])
    incident = opened(rule)
    Membership.objects.all().delete()

    message = send(incident)

    assert message.state == "failed"
    assert receiver.requests == []
    assert not opened(rule, "later").messages.exists()


def test_secrets_of_a_channel_are_neither_stored_nor_audited_readably(rule: AlertRule, receiver: Receiver) -> None:
    channel, secret = channel_of(rule, "webhook", receiver.url)

    row = json.dumps(list(AlertChannel.objects.values()), default=str)
    audit = json.dumps(list(AuditEvent.objects.values()), default=str)

    for text in (row, audit):
        assert "secret-path" not in text
        assert secret not in text
    assert channel.address == "127.0.0.1"


def test_another_secret_key_is_told_and_nothing_is_sent(rule: AlertRule, receiver: Receiver, settings: Any) -> None:
    channel_of(rule, "webhook", receiver.url)
    incident = opened(rule)
    settings.SECRET_KEY = "another"

    assert "secret key has changed" in send(incident).answer
    assert receiver.requests == []


def test_a_test_shows_the_receivers_answer_and_is_not_repeated_at_once(rule: AlertRule, receiver: Receiver) -> None:
    channel, _secret = channel_of(rule, "webhook", receiver.url)
    receiver.status, receiver.body = 403, b"no such\n room"

    told = send_test(channel, actor=make_user(), now=timezone.now())

    assert (told.is_delivered, told.answer) == (False, "403 no such room")
    with pytest.raises(AlertRefused, match="ten seconds"):
        send_test(channel, actor=make_user(), now=timezone.now())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://example.com/x", "begins with https://"),
        ("https://", "begins with https://"),
        ("https://me:secret@example.com/", "Leave name and password out"),
        ("http://example.com/", "Use https://"),
        ("https://127.0.0.1/", "private network"),
        ("https://[::1]/", "private network"),
        ("https://[::ffff:10.0.0.1]/", "private network"),
        *(
            (f"https://[{address}]/", "private network")
            for address in (
                "64:ff9b::a00:1",
                "64:ff9b:1::7f00:1",
                "::7f00:1",
                "::ffff:0:7f00:1",
                "2002:7f00:1::",
                "fec0::1",
            )
        ),
        *((f"https://{address}/", "private network") for address in ("0.0.0.0", "[::]", "192.0.0.192", "100.64.0.1")),
        ("https://169.254.169.254/latest/meta-data", "private network"),
        ("https://10.1.2.3/", "private network"),
        ("https://exa mple.com/", "without spaces"),
        ("https://[::1", "begins with https://"),
    ],
)
def test_an_address_that_leads_inside_is_refused(url: str, says: str, settings: Any) -> None:
    with pytest.raises(AlertRefused, match=says):
        check_url(url)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "0177.0.0.1"])
def test_an_address_in_another_notation_is_looked_at_as_the_system_reads_it(host: str) -> None:
    check_url(f"https://{host}/")  # a name, as far as it says

    with pytest.raises(NotDelivered, match="private network"):
        post(f"https://{host}:1/", b"{}", {}, lambda: None)


def test_nobody_sends_tests_by_the_dozen_by_making_channels_anew(rule: AlertRule, receiver: Receiver) -> None:
    person = make_user()

    for _ in range(MAX_TESTS):
        channel, _secret = channel_of(rule, "slack", receiver.url)
        assert send_test(channel, actor=person, now=timezone.now()).is_delivered
        delete_channel(channel, actor=person)

    channel, _secret = channel_of(rule, "slack", receiver.url)
    with pytest.raises(AlertRefused, match="10 tests within five minutes"):
        send_test(channel, actor=person, now=timezone.now())
    assert send_test(channel, actor=make_user(), now=timezone.now()).is_delivered


@pytest.mark.parametrize("name", ["localhost", "sneaky.example"])
def test_a_name_that_points_inside_when_it_is_connected_to_gets_nothing(
    rule: AlertRule, receiver: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    channel, _secret = channel_of(rule, "slack", f"https://{name}:{receiver.server.server_port}/")
    settings.WEBHOOK_HOSTS = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *_a, **_k: [(2, 1, 6, "", ("127.0.0.1", 80))])

    told = send_test(channel, actor=make_user(), now=timezone.now())

    assert not told.is_delivered
    assert "private network" in told.answer
    assert receiver.requests == []


@pytest.mark.parametrize("entry", ["127.0.0.1", "127.0.0.0/8", "LOCALHOST"])
def test_what_the_operator_lists_is_allowed(receiver: Receiver, settings: Any, entry: str) -> None:
    settings.WEBHOOK_HOSTS = [entry]
    host = "localhost" if entry == "LOCALHOST" else "127.0.0.1"

    assert check_url(f"http://{host}/") == host


def test_mail_needs_a_server_and_an_address(rule: AlertRule, settings: Any) -> None:
    settings.SMTP_HOST = ""
    with pytest.raises(AlertRefused, match="PITWALL_SMTP_HOST"):
        channel_of(rule, "email", "team@example.com")
    settings.SMTP_HOST = "mail.example.com"
    with pytest.raises(AlertRefused, match="not an e-mail address"):
        channel_of(rule, "email", "team@example.com\nBcc: all@example.com")
