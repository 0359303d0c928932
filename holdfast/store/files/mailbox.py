"""The mailbox of a directory store: commands that any process leaves for the owner.

    mail/<number>.mail    sealed JSON [command, data]
    mail/<number>.bad     a mail that was damaged; set aside as it was, reported in the event log

A mail gets its number by `link`, which refuses a number that is taken: order without a clock. The owner takes a mail
by renaming it into its private directory, so each is taken once and never by an owner that was replaced. A mail taken
by a process that dies before it acts is lost; whoever posted it sees no effect and posts again.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import HoldfastError
from holdfast.store import sealed_file
from holdfast.store.base import Mail
from holdfast.store.event_mail_bytes import MAIL_BYTES_MAX, decode_mail, encode_mail
from holdfast.store.files.lease import Lease

_KIND = "mail"


def post(directory: Path, job: str, command: str, data: Mapping[str, Any]) -> None:
    """Leave a command. Durable when this returns."""
    payload = encode_mail(command, data)
    with durable.translate_os_errors(str(directory)):
        while not _post_as(directory, job, _last_number(directory) + 1, payload):
            pass


def collect(directory: Path, job: str, lease: Lease) -> tuple[list[Mail], list[str]]:
    """Take what was posted, oldest first. Also returns a sentence per mail that was set aside."""
    mails: list[Mail] = []
    refused: list[str] = []
    for name in sealed_file.list_directory(directory):
        if not name.endswith(".mail"):
            continue
        taken = lease.temporary()
        try:
            os.rename(directory / name, taken)
        except OSError:
            if mails:
                break  # what was taken is not lost; the next call meets the failure again
            raise
        try:
            mails.append(_open(taken, directory / name, job))
        except HoldfastError as error:
            os.rename(taken, (directory / name).with_suffix(".bad"))
            refused.append(error.message)
        else:
            durable.remove_quietly(taken)
    return mails, refused


def _open(taken: Path, posted: Path, job: str) -> Mail:
    data = sealed_file.read_whole(taken) or b""
    payload = sealed_file.unseal(data[: 2 * MAIL_BYTES_MAX], posted, _KIND, job, posted.stem)
    return decode_mail(payload, posted)


def _post_as(directory: Path, job: str, number: int, payload: bytes) -> bool:
    """Try to post under a number. False: it is taken."""
    name = f"{number:012d}"
    staged = directory / f".new-{secrets.token_hex(8)}"
    try:
        durable.write_staged(staged, sealed_file.seal(_KIND, job, name, payload))
        os.link(staged, directory / f"{name}.mail")
    except FileExistsError:
        return False
    finally:
        durable.remove_quietly(staged)
    durable.fsync_directory(directory)
    return True


def _last_number(directory: Path) -> int:
    numbers = (name.partition(".")[0] for name in sealed_file.list_directory(directory))
    return max((int(number) for number in numbers if number.isdigit()), default=0)
