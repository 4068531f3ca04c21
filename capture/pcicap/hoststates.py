"""What hosts say of themselves before and after other programs ran: asked by ``framegen state``, kept as it is."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pcicap.errors import FrameError
from pcicap.framegen import find_program

_PATIENCE_S = 10.0
_PORT = re.compile(r"(?:\[([^]]*)\]|([^:]*))(?::\d+)?")


def interface_to(peer: str) -> str:
    """The interface by which this host reaches another: by its routes.

    Parameters
    ----------
    peer : str
        Address or name, with a port or without.

    Raises
    ------
    FrameError
        Nobody knows it, or there is no route.
    """
    match = _PORT.fullmatch(peer)
    name = (match[1] or match[2]) if match else peer
    try:
        address = socket.getaddrinfo(name, None)[0][4][0]
        command = ["ip", "-j", "route", "get", str(address)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        return str(json.loads(done.stdout)[0]["dev"])
    except (OSError, ValueError, LookupError, subprocess.TimeoutExpired) as error:
        raise FrameError(f"{peer}: by which interface it is reached is not known ({error}); say --interface") from None


class HostStates:
    """The states of this host and, where ``framegen serve`` runs there, of the other one.

    Parameters
    ----------
    interface : str
        Of this host.
    serving : str or None
        Address of the other host's interface where ``framegen serve`` runs.
    hosts : sequence of str
        What run.toml calls this host and the other.
    folder : Path
        Run folder.
    """

    def __init__(self, interface: str, serving: str | None, hosts: Sequence[str], folder: Path) -> None:
        self._command = [find_program(), "state", "-i", interface, "--json"]
        if serving is not None:
            # a few control frames, no test: they may share an interface with everything else
            self._command += ["-p", serving, "--allow-default-route"]
        self._hosts, self._folder = hosts, folder
        self.entries: list[dict[str, str]] = []

    def ask(self, when: str) -> None:
        """Ask all, and write what they say; `when` is ``before`` or ``after``.

        Raises
        ------
        FrameError
            framegen refused, or the other host does not answer.
        """
        command = self._command
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        except subprocess.TimeoutExpired:
            raise FrameError(f"framegen state: no answer after {_PATIENCE_S:g} s") from None
        for line in done.stdout.splitlines():
            event = json.loads(line)
            if event["event"] == "state" and event["state"] is not None:
                self._write(self._hosts[event["node"]], when, event["state"])
        if done.returncode != 0:
            raise FrameError(f"framegen state: {done.stderr.strip().removeprefix('framegen: ')}")

    def _write(self, host: str, when: str, state: dict[str, Any]) -> None:
        if when != "before":
            state.pop("facts", None)
        file = self._folder / f"{host}-{when}.json"
        file.write_text(json.dumps(state) + "\n", encoding="utf-8")
        entry = next((one for one in self.entries if one["host"] == host), None)
        if entry is None:
            entry = {"host": host}
            self.entries.append(entry)
        entry[when] = file.name
