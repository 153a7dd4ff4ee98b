"""E-mail by the SMTP server of the settings. The Message-ID is the message's key, so that a mailbox that gets it twice
can tell."""

import contextlib
import smtplib
from email.utils import parseaddr
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend
from django.core.validators import validate_email
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.alerts.channels.channel import ChannelAddress
from jobs.alerts.content import AlertContent
from jobs.alerts.handing import Handed, NotDelivered
from jobs.alerts.kinds import AlertRefused

SECONDS = 20


class Plugin:
    """One plain-text mail to one address."""

    label = gettext_lazy("E-mail")
    hint = gettext_lazy("One address.")
    placeholder = "team@example.com"

    def unavailable(self) -> str:
        """Return a sentence while no SMTP server is set."""
        return "" if settings.SMTP_HOST else _("This console has no mail server. Its operator sets PITWALL_SMTP_HOST.")

    def check(self, address: str) -> ChannelAddress:
        """Return the address; it is no secret."""
        address = address.strip()
        try:
            validate_email(address)
        except ValidationError as error:
            text = _("%(given)r is not an e-mail address such as team@example.com.") % {"given": address[:100]}
            raise AlertRefused("address", text) from error
        if len(address) > 254:
            raise AlertRefused("address", _("An e-mail address has at most 254 characters."))
        return ChannelAddress(shown=address, secrets={})

    def send(self, content: AlertContent, to: ChannelAddress, hand_over: Handed) -> str:
        """Send it, and return what the server said to it."""
        if problem := self.unavailable():
            raise NotDelivered(problem, is_final=True)
        server = EmailBackend(
            host=settings.SMTP_HOST,
            port=settings.SMTP_PORT,
            username=settings.SMTP_USER,
            password=settings.SMTP_PASSWORD,
            use_tls=settings.SMTP_TLS == "starttls",
            use_ssl=settings.SMTP_TLS == "tls",
            timeout=SECONDS,
        )
        try:
            server.open()
            return _hand_in(server.connection, _mail(content, to.shown), to.shown, hand_over)
        except NotDelivered:
            raise
        except smtplib.SMTPAuthenticationError as error:
            raise NotDelivered(f"the mail server refused the console's sign-in: {error.smtp_code}") from error
        except (smtplib.SMTPException, OSError) as error:
            raise NotDelivered(f"{type(error).__name__}: {error}"[:300]) from error
        finally:
            with contextlib.suppress(smtplib.SMTPException, OSError):
                server.close()


def _mail(content: AlertContent, address: str) -> bytes:
    about = [f"{name}: {value}" for name, value in _facts(content).items() if value]
    subject = f"[Pitwall] {content.headline}".replace("\r", " ").replace("\n", " ")
    domain = parseaddr(settings.SMTP_FROM)[1].rpartition("@")[2] or "pitwall.invalid"
    mail = EmailMessage(
        subject=subject[:200],
        body="\n".join([*content.lines, "", content.url, "", *about, ""]),
        from_email=settings.SMTP_FROM,
        to=[address],
        headers={
            "Message-ID": f"<{content.key}@{domain}>",
            "Auto-Submitted": "auto-generated",
            "X-Pitwall-Event": content.event,
            # All mails of one incident are one thread.
            **({"References": f"<incident-{content.incident}@{domain}>"} if content.incident else {}),
        },
    )
    return mail.message().as_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _facts(content: AlertContent) -> dict[str, str]:
    return {
        "Severity": content.severity,
        "Project": content.project,
        "Rule": content.rule,
        "Run": content.run,
        "At": content.at,
    }


def _hand_in(smtp: Any, mail: bytes, address: str, hand_over: Handed) -> str:
    """Give the mail to the server and return its answer. Raises: NotDelivered."""
    sender = parseaddr(settings.SMTP_FROM)[1]
    for code, said in (smtp.mail(sender), smtp.rcpt(address)):
        if code // 100 != 2:
            raise NotDelivered(_line(code, said), is_final=code // 100 == 5)
    hand_over()
    try:
        code, said = smtp.data(mail)
    except smtplib.SMTPDataError as error:
        raise NotDelivered(_line(error.smtp_code, error.smtp_error), is_final=error.smtp_code // 100 == 5) from error
    except (smtplib.SMTPException, OSError) as error:
        raise NotDelivered(f"{type(error).__name__}: {error}"[:300], may_have_arrived=True) from error
    if code // 100 != 2:
        raise NotDelivered(_line(code, said), is_final=code // 100 == 5)
    return _line(code, said)


def _line(code: int, said: bytes | str) -> str:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return " ".join(f"{code} {text}".split())[:300]


PLUGIN = Plugin()
