"""What an error of PostgreSQL means, in one sentence. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.errors import ConfigError, HoldfastError, InputError, NoSpaceError, StoreError
from holdfast.sinks.database.address import Address

_AWAY = ("08", "57", "58")
_BUSY = ("53300", "53400", "55P03", "40001", "40P01", "25P03")
"""Classes and codes of troubles that pass: no connection, the server ends or begins, too busy, locks, deadlocks."""
_REFUSED = re.compile(
    r"authentication failed|does not exist|no pg_hba|not permitted|permission denied|no password supplied|invalid URI"
    r"|invalid connection option|invalid (port|integer)|missing \"=\"|sslmode|root certificate|certificate verify"
)
_QUERY = re.compile(r"\s*(Query was:|SQLSTATE:|CONTEXT:|LINE \d+:|HINT:).*", re.DOTALL)
_PLACE = re.compile(r"Failed to connect: |connection to server at .*? failed: ")
_PREFIX = re.compile(r"^[A-Z_]+: (\[libpq\] )?")


@dataclass(frozen=True, slots=True)
class Fault:
    """What the driver said: the text without statements, and the code."""

    text: str
    code: str

    @classmethod
    def of(cls, error: Exception, address: Address) -> Fault:
        said = _QUERY.sub("", str(error))
        said = said.rpartition("ERROR:  ")[2] if "ERROR:  " in said else _PREFIX.sub("", said)
        said = _PLACE.sub("", said).replace("FATAL:", "")
        first, *more = [line.strip().rstrip(".") for line in said.splitlines() if line.strip()] or [
            "no reason given"
        ]
        details = [line.removeprefix("DETAIL:").strip() for line in more if line.startswith("DETAIL:")]
        text = " ".join([" ".join(first.split()), *(f"({detail})" for detail in details)])
        return cls(address.scrubbed(text), getattr(error, "sqlstate", None) or "")

    @property
    def is_outage(self) -> bool:
        if self.code:
            return self.code.startswith(_AWAY) or self.code in _BUSY
        return not _REFUSED.search(self.text)


def error_of(fault: Fault, address: Address, table: str, starting: bool) -> Exception:
    """The error to raise. While a run begins, whatever is wrong is a matter of settings; later an outage is one that the
    region waits for, and what the table does not take ends the run."""
    where = f"table {table} of {address.shown}"
    if fault.is_outage:
        sentence = f"{address.shown} cannot be reached: {fault.text}."
        if starting:
            return ConfigError(sentence, cure="Start the server, or correct the URL.")
        return ConnectionError(f"{sentence} It is tried again.")
    if not fault.code and starting:
        return ConfigError(f"{address.shown} refuses the connection: {fault.text}.", cure="Correct the URL.")
    return _refusal(fault, where, ConfigError if starting else StoreError)


def _refusal(fault: Fault, where: str, kind: type[HoldfastError]) -> HoldfastError:
    text, code = fault.text, fault.code
    if code.startswith("53"):
        return NoSpaceError(f"{where}: the server has no space left: {text}.", cure="Free some space there.")
    if code == "42501":
        return kind(
            f"{where}: {text}.",
            cure="Grant SELECT, INSERT, UPDATE and DELETE on the table, and CREATE on the schema of the staging tables "
            "(choose it with staging='schema').",
        )
    if code == "42P10":
        return kind(
            f"{where} has no primary key or unique constraint on the key columns.",
            cure="Add one, or give the columns of the one it has as key=.",
        )
    if code.startswith("23"):
        return InputError(
            f"{where} does not take a row: {text}.",
            cure="Nothing of its epoch was written. Change the constraint or the rows that are in the way, and run again.",
        )
    if code.startswith("22"):
        return InputError(
            f"{where} does not take a value: {text}.",
            cure="Nothing of its epoch was written. Widen the column, or filter or convert the rows before the sink, and run again.",
        )
    if code.startswith("42") or code == "3F000":
        return kind(f"{where}: {text}.", cure="Correct the table or the sink and run again.")
    return kind(f"{where}: {text}.", cure="Mend the cause and run again.")
