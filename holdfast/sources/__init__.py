"""Where rows come from: files, lines over a network, a deterministic generator, and lists for tests.

Importing this package needs no Java: pyspark is imported only inside the methods that are handed a session.
"""

from __future__ import annotations

from holdfast.sources.beacon import Beacon
from holdfast.sources.files import Files
from holdfast.sources.lists import Rows
from holdfast.sources.logs.log_source import LogSource
from holdfast.sources.logs.preserved import Preserved
from holdfast.sources.network.http_lines import HttpLines
from holdfast.sources.network.tcp_lines import TcpLines
from holdfast.sources.network.udp_lines import UdpLines

__all__ = ["Beacon", "Files", "HttpLines", "LogSource", "Preserved", "Rows", "TcpLines", "UdpLines"]
