"""Where a database is, as users write it, and how it is told to people: never with a password."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote

from holdfast.errors import ConfigError

Server = Literal["postgresql", "sqlite"]
EXAMPLES = "Write postgresql://user:password@host:5432/database, or sqlite:path/to/file.db."
_SECRETS = ("password", "sslpassword")


@dataclass(frozen=True, slots=True)
class Address:
    """A database. `url` is what the driver gets; it may hold a password, so it is in no text that people see."""

    server: Server
    url: str = field(repr=False)
    shown: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL; ConfigError if it is none."""
        scheme, _, rest = url.partition(":")
        if scheme in ("postgresql", "postgres") and rest.startswith("//"):
            return _postgresql(f"postgresql:{rest}")
        if scheme == "sqlite" and rest.removeprefix("//"):
            path = Path(unquote(rest.removeprefix("//"))).absolute()
            return cls("sqlite", str(path), f"SQLite file {path}")
        known = re.fullmatch(r"[a-z0-9+]+", scheme)
        what = (
            f"{scheme}: is no kind of database known here" if known else "the URL of a database has no scheme"
        )
        raise ConfigError(f"{what}.", cure=f"{EXAMPLES} For others use hf.ForeachBatch.in_transaction.")

    def scrubbed(self, text: str) -> str:
        """A text without the passwords of the URL."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def _postgresql(url: str) -> Address:
    rest = url.removeprefix("postgresql://")
    place, _, query = rest.partition("?")
    user, _, host = place.rpartition("@")
    options = dict(parse_qsl(query, keep_blank_values=True))
    raw = [user.partition(":")[2], *(options.get(name, "") for name in _SECRETS)]
    secrets = {form for secret in raw for form in (secret, unquote(secret)) if form}
    host = host or options.get("host", "")
    return Address("postgresql", url, f"PostgreSQL at {host or 'its default place'}", tuple(sorted(secrets)))
