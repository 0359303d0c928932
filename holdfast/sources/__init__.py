"""Where rows come from: files, lines over a network, a deterministic generator, and lists for tests.

Importing this package needs no Java: pyspark is imported only inside the methods that are handed a session. A source is imported when it is
first named: who reads files need not wait for a server of HTTP.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.sources.beacon import Beacon as Beacon
    from holdfast.sources.files import Files as Files
    from holdfast.sources.lists import Rows as Rows
    from holdfast.sources.logs.log_source import LogSource as LogSource
    from holdfast.sources.logs.preserved import Preserved as Preserved
    from holdfast.sources.network.http_lines import HttpLines as HttpLines
    from holdfast.sources.network.tcp_lines import TcpLines as TcpLines
    from holdfast.sources.network.udp_lines import UdpLines as UdpLines

_HOMES = {
    "Beacon": "beacon",
    "Files": "files",
    "HttpLines": "network.http_lines",
    "LogSource": "logs.log_source",
    "Preserved": "logs.preserved",
    "Rows": "lists",
    "TcpLines": "network.tcp_lines",
    "UdpLines": "network.udp_lines",
}

__all__ = sorted(_HOMES)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
