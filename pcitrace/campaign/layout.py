"""Where the results of a campaign stand in its destination; docs/campaigns.md describes it for users.

    campaigns/BY/HASH.json                                   which runs a campaign has
    constants/schema=1/by=BY/run_id=ID/part.parquet          a row a number
    status/schema=1/by=BY/run_id=ID/part.parquet             a row: state, times, memory, findings
    results/BY/ID.json                                       what `pcitrace report --json` prints
    pages/BY/ID.html                                         the report of the run, where asked for
    markers/BY/ID.json                                       written last: this run's work is over
    leases/BY/ID/N.json                                      somebody is at it; of several the highest N counts

BY is version and options, so that results of different options never replace each other.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pcitrace.campaign.errors import CampaignError
from pcitrace.campaign.storage import Store

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SCHEMA_VERSION", "Destination", "campaigns"]

SCHEMA_VERSION = 1
"""Of the columns and the layout; a reader refuses a newer one."""


class Destination:
    """The results of one version with one set of options.

    Parameters
    ----------
    store : Store
    by : str
        Version and options: see ``Options.by``.
    """

    def __init__(self, store: Store, by: str) -> None:
        self.store, self.by = store, by

    def part(self, table: str, run: str) -> str:
        """Return the name of a run's part of a table."""
        return f"{table}/schema={SCHEMA_VERSION}/by={self.by}/run_id={run}/part.parquet"

    def page(self, run: str) -> str:
        """Return the name of a run's page."""
        return f"pages/{self.by}/{run}.html"

    def result(self, run: str) -> str:
        """Return the name of a run's numbers."""
        return f"results/{self.by}/{run}.json"

    def marker(self, run: str) -> dict[str, Any] | None:
        """Return what is known of a run whose work is over."""
        name = f"markers/{self.by}/{run}.json"
        content = self.store.read(name)
        return None if content is None else _told(self.store, name, content)

    def markers(self) -> dict[str, dict[str, Any]]:
        """Return all of them, by run."""
        found = self.store.read_all(f"markers/{self.by}")
        return {_stem(name): _told(self.store, name, content) for name, content in found.items()}

    def leases(self) -> set[str]:
        """Return runs that somebody is at now."""
        now, found = time.time(), self.store.read_all(f"leases/{self.by}")
        return {
            name.split("/")[-2] for name, content in found.items() if _told(self.store, name, content)["until"] > now
        }

    def take(self, run: str, seconds: float, campaign: str) -> str | None:
        """Say that a campaign is at a run; None if another one is.

        A lease whose time is over is followed by one with the next number, which of several that try it one alone can
        make: nobody takes away what another has just taken. What this campaign's own worker left when it died is taken
        over.

        Returns
        -------
        str or None
            Name of the lease, for :meth:`renew` and :meth:`release`.
        """
        folder, now = f"leases/{self.by}/{run}", time.time()
        found = {
            int(_stem(name)): _told(self.store, name, content) for name, content in self.store.read_all(folder).items()
        }
        last = max(found, default=-1)
        if found and found[last]["until"] > now and found[last]["campaign"] != campaign:
            return None
        name = f"{folder}/{last + 1}.json"
        return name if self.store.create(name, _lease(seconds, campaign)) else None

    def renew(self, lease: str, seconds: float, campaign: str) -> None:
        """Say that a campaign is still at a run, for so long."""
        self.store.write(lease, _lease(seconds, campaign))

    def release(self, lease: str) -> None:
        """Take a lease back, and those before it."""
        folder, _, last = lease.rpartition("/")
        for number in range(int(last.removesuffix(".json")) + 1):
            self.store.remove(f"{folder}/{number}.json")

    def forget(self, run: str) -> None:
        """Take the marker of a failed run away: it is pending again."""
        self.store.remove(f"markers/{self.by}/{run}.json")

    def record(self, run: str, status: dict[str, Any], constants: pa.Table | None, files: dict[str, bytes]) -> None:
        """Write what is known of a run: parts and files first, the marker last."""
        for name, content in files.items():
            self.store.write(name, content)
        if constants is None:
            # What stands there is of other files.
            self.store.remove(self.part("constants", run))
        else:
            self.store.write(self.part("constants", run), _parquet(constants))
        self.store.write(self.part("status", run), _parquet(_status_table(status)))
        self.mark(run, status)

    def mark(self, run: str, status: dict[str, Any]) -> None:
        """Say that the work on a run is over."""
        self.store.write(f"markers/{self.by}/{run}.json", json.dumps(status).encode())

    def remember(self, runs: Sequence[str], said: dict[str, Any]) -> None:
        """Note which runs a campaign has."""
        name = hashlib.sha256(json.dumps(list(runs)).encode()).hexdigest()[:16]
        told = {"schema": SCHEMA_VERSION, "created": time.time(), "runs": list(runs), **said}
        self.store.write(f"campaigns/{self.by}/{name}.json", json.dumps(told).encode())


def campaigns(store: Store) -> list[dict[str, Any]]:
    """Return what was noted of the campaigns of a destination, the newest last, each with its ``by``.

    Raises
    ------
    CampaignError
        There is none, or they are of a newer schema.
    """
    found = []
    for name, content in store.read_all("campaigns").items():
        one = _told(store, name, content)
        if one.get("schema", 0) > SCHEMA_VERSION:
            raise CampaignError(f"{store.url}: written by a newer pcitrace (schema {one['schema']}): use that one")
        found.append(one | {"by": name.split("/")[1]})
    if not found:
        raise CampaignError(f"{store.url}: no campaign here; `pcitrace campaign run PATTERN -o DEST` begins one")
    return sorted(found, key=lambda one: float(one["created"]))


def _lease(seconds: float, campaign: str) -> bytes:
    return json.dumps({"until": time.time() + seconds, "campaign": campaign}).encode()


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")


def _told(store: Store, name: str, content: bytes) -> dict[str, Any]:
    """Return what a campaign wrote down."""
    try:
        return dict(json.loads(content))
    except (TypeError, ValueError) as error:
        raise CampaignError(
            f"{store.url}/{name}: damaged ({error}); remove it and run again: what it told of is done anew"
        ) from error


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return out.getvalue()


def _status_table(status: dict[str, Any]) -> pa.Table:
    import pyarrow as pa

    columns = {
        "run": pa.string(),
        "state": pa.string(),
        "reason": pa.string(),
        "kind": pa.string(),
        "started": pa.float64(),
        "seconds": pa.float64(),
        "peak_mib": pa.float64(),
        "findings": pa.list_(pa.string()),
        "version": pa.string(),
        "key": pa.string(),
    }
    return pa.table({name: pa.array([status[name]], type_) for name, type_ in columns.items()})
