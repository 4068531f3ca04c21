"""Campaigns from and to buckets and web servers: a real object store and a real server, on loopback."""

from __future__ import annotations

import functools
import http.server
import io
import json
import threading
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

import pcitrace
from pcitrace.campaign import Campaign, CampaignError, Limits, Options, forks, numbers, sources
from pcitrace.campaign.errors import DestinationError
from pcitrace.campaign.inputs import Inputs
from pcitrace.campaign.layout import Destination
from pcitrace.campaign.storage import Store
from pcitrace.cli import main

# Of the server and of botocore, not of ours.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "run"
    command = ["simulate", "acenic-fig3.1", "-o", str(folder), "--set", "test.count=6", "sweep.loops=2"]
    assert main(command) == 0
    return folder


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An object store on loopback; nothing of the user's own settings reaches it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = dict.fromkeys(CREDENTIALS, "test") | {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path_factory.mktemp("aws") / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path_factory.mktemp("aws") / "none"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        fsspec.filesystem("s3").clear_instance_cache()
        yield settings["AWS_ENDPOINT_URL"]
    fsspec.filesystem("s3").clear_instance_cache()
    server.stop()


@pytest.fixture(scope="module")
def bucket(run: Path, endpoint: str) -> str:
    """A bucket with one run."""
    name = f"s3://bench-{endpoint.rpartition(':')[2]}"  # servers of one process share their buckets
    fsspec.filesystem("s3").mkdir(name)
    fsspec.filesystem("s3").put(str(run), f"{name}/runs/", recursive=True)
    return name


@pytest.fixture
def answer(endpoint: str) -> Iterator[Callable[[str], None]]:
    """Tell the store how many requests it takes before it asks who we are: "0", "inf"."""

    def tell(count: str) -> None:
        ask = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", count.encode(), {"Content-Type": "text/plain"})
        urllib.request.urlopen(ask).close()

    yield tell
    tell("inf")


def test_from_a_bucket_to_a_bucket(run: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = Campaign(f"{bucket}/runs/*", f"{bucket}/results")
    [first] = campaign.one()
    assert (first["state"], first["run"]) == ("done", f"{bucket}/runs/run")
    assert campaign.status()["done"] == 1
    # Nothing changed: nothing is done, by the ETags alone.
    assert campaign.one() == [first]
    found = pcitrace.open(run)
    results = found.results.as_dict() | {"run": first["run"]}
    described = tomllib.loads((run / "run.toml").read_text())
    cards = dict.fromkeys(described["hosts"], "acenic")
    alone = numbers.table(first["run"], results, found.network.as_dict(), described, cards)
    [part] = campaign.parts("constants")
    there = fsspec.filesystem("s3").glob(f"{bucket}/results/constants/**/part.parquet")
    assert [fsspec.filesystem("s3").cat_file(one) for one in there] == [part]
    assert pq.read_table(io.BytesIO(part)).equals(alone)
    assert len(campaign.constants) == alone.num_rows > 10
    # Another process knows of the campaign by its destination.
    assert main(["campaign", "status", f"{bucket}/results"]) == 0
    assert "1 done, 0 failed" in capsys.readouterr().out
    assert main(["compare", f"{bucket}/results", "--constant", "R_PCI_send_us_per_byte", "--json"]) == 0
    [row] = [one for one in json.loads(capsys.readouterr().out)["numbers"] if not one["host"]]
    assert row["run"] == results["constants"]["R_PCI_send_us_per_byte"]["value"]


@pytest.mark.parametrize("pattern", ["many", "many/*", "many/r*"])
def test_many_runs_are_found_by_one_request(pattern: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(f"{bucket}/many")
    for number in range(20):
        store.write(f"r{number:02}/run.toml", b"")
        store.write(f"r{number:02}/truth/one.json", b"")
    store.write("r-sweep/p1/run.toml", b"")
    store.write("r-results/campaigns/by/one.json", b"")
    store.write("r-results/markers/by/one.json", b"")
    store.write("r-empty/", b"")  # as consoles make folders
    asked = []
    ask = S3FileSystem._call_s3

    async def count(self: S3FileSystem, method: str, *rest: Any, **more: Any) -> Any:
        asked.append(method)
        return await ask(self, method, *rest, **more)

    monkeypatch.setattr(S3FileSystem, "_call_s3", count)
    found = [one.url.removeprefix(f"{bucket}/many/") for one in sources.expand([f"{bucket}/{pattern}"])]
    assert found == sorted(["r-sweep/p1", "r-empty", *(f"r{number:02}" for number in range(20))])
    assert asked[0] == "list_objects_v2"
    assert len(asked) <= 5  # of the empty folder is asked again
    store.write("r20/run.toml", b"")  # each time anew
    assert len(sources.expand([f"{bucket}/{pattern}"])) == 23
    store.remove("r20/run.toml")


def test_runs_of_a_bucket_one_after_the_other(run: Path, bucket: str) -> None:
    """The second child is forked from a process that has the libraries of the object store."""
    for name in ("a", "b"):
        fsspec.filesystem("s3").put(str(run), f"{bucket}/two/{name}/", recursive=True)
    campaign = Campaign(f"{bucket}/two", f"{bucket}/results2")
    assert [one["state"] for one in campaign.one()] == ["done", "done"]
    with forks.forker() as one:
        assert "/aiohttp/" in Path(f"/proc/{one.number}/maps").read_text()


@pytest.fixture
def google(run: Path) -> Iterator[str]:
    """A bucket with one run in a stand-in for Google's storage."""
    from gcp_storage_emulator.server import create_server

    server = create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    host, port = server._api._httpd.server_address
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}:{port}")
        # By itself gcsfs asks over gRPC, too, what the bucket is, which the stand-in does not know.
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        # Here, and in the processes in which runs are analysed.
        patch.setenv("FSSPEC_GS_TOKEN", "anon")
        patch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
        fs = fsspec.filesystem("gs", skip_instance_cache=True)
        fs.mkdir("bench")
        fs.put(str(run), "bench/runs/", recursive=True)
        yield "gs://bench"
        fsspec.filesystem("gs").clear_instance_cache()
    server.stop()


def test_from_a_google_bucket_to_a_google_bucket(run: Path, google: str) -> None:
    campaign = Campaign(f"{google}/runs/*", f"{google}/results")
    [first] = campaign.one()
    assert (first["state"], first["reason"], first["run"]) == ("done", None, f"{google}/runs/run")
    assert campaign.status()["done"] == 1
    assert campaign.one() == [first]
    assert campaign.retry() == []
    found = pcitrace.open(run)
    described = tomllib.loads((run / "run.toml").read_text())
    results = found.results.as_dict() | {"run": first["run"]}
    [part] = campaign.parts("constants")
    cards = dict.fromkeys(described["hosts"], "acenic")
    alone = numbers.table(first["run"], results, found.network.as_dict(), described, cards)
    assert pq.read_table(io.BytesIO(part)).equals(alone)


def test_a_bucket_creates_what_is_not_there_yet(bucket: str) -> None:
    """A storage that cannot rename puts on condition that nothing is there: a lease is one campaign's."""
    store = Store(f"{bucket}/created")
    assert [store.create("one", content) for content in (b"1", b"2")] == [True, False]
    assert store.read("one") == b"1"
    here, there = Destination(store, "by"), Destination(Store(f"{bucket}/created"), "by")
    lease = here.take("run", -1.0, "dead")
    assert lease is not None
    taken = there.take("run", 60.0, "a")
    assert taken is not None
    assert (here.take("run", 60.0, "b"), here.leases()) == (None, {"run"})
    there.release(taken)
    assert store.read(lease) is None


def test_the_scratch_has_a_bound(bucket: str, tmp_path: Path) -> None:
    [status] = Campaign(f"{bucket}/runs/run", tmp_path, limits=Limits(scratch_mib=0.01)).one()
    assert "need more than the 0.01 MiB of the scratch" in status["reason"]


@contextmanager
def served(handler: type[http.server.SimpleHTTPRequestHandler], folder: Path) -> Iterator[str]:
    """A web server of a folder; its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_from_a_web_server(run: Path, tmp_path: Path) -> None:
    with served(http.server.SimpleHTTPRequestHandler, run.parent) as place:
        url = f"{place}/{run.name}"
        campaign = Campaign(url, tmp_path / "out")
        [first] = campaign.one()
        assert (first["state"], first["run"]) == ("done", url)
        [part] = (tmp_path / "out").glob("constants/**/*.parquet")
        written = part.stat().st_mtime_ns
        # Its files tell nothing by which a change could be seen: they are read again, and found to be the same.
        campaign.one()
        assert part.stat().st_mtime_ns == written
        assert json.loads(next((tmp_path / "out").glob("results/*/*.json")).read_text())["run"] == url
        for step in (Campaign(run, f"{url}/results").one, Campaign(run, f"{url}/results").run):
            with pytest.raises(DestinationError, match="a web server takes no results: name a folder or a bucket"):
                step()


@pytest.mark.parametrize("pattern", ["", "/", "/*", "/sweep"])
def test_folders_of_a_web_server_hold_runs(pattern: str, tmp_path: Path) -> None:
    for name in ("sweep/a b", "sweep/c=d"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.toml").touch()
    with served(http.server.SimpleHTTPRequestHandler, tmp_path) as place:
        found = [one.url.removeprefix(place) for one in sources.expand([f"{place}{pattern}"])]
    assert found == ["/sweep/a%20b", "/sweep/c%3Dd"]


def test_a_web_server_that_lists_nothing(run: Path, tmp_path: Path) -> None:
    """What run.toml names is asked for there."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def list_directory(self, path: object) -> None:
            self.send_error(403)

    with served(Handler, run.parent) as place:
        [status] = Campaign(f"{place}/{run.name}", tmp_path / "out").one()
    assert (status["state"], status["reason"]) == ("done", None)


def test_a_bucket_gives_every_file_that_a_run_names(bucket: str, tmp_path: Path) -> None:
    """In folders that are named, whatever they are called; and folders may be objects themselves."""
    texts = {
        "run.toml": 'file = "bus-10:30 #1.sr"\nfolder = "companions/beside"\nnic = "../card.toml"\n',
        "bus-10:30 #1.sr": "samples",
        "companions/beside/summary.json": "{}",
        "of-no-account.txt": "",
    }
    store = Store(f"{bucket}/odd/50%?")
    for name, text in texts.items():
        store.write(name, text.encode())
    fsspec.filesystem("s3").touch(f"{bucket}/odd/50%?/")
    [source] = sources.expand([f"{bucket}/odd"])
    inputs = Inputs(source.url, tmp_path, 1.0)
    brought = {
        str(path.relative_to(inputs.path)): path.read_text() for path in inputs.path.rglob("*") if path.is_file()
    }
    assert brought == {name: text for name, text in texts.items() if name != "of-no-account.txt"}
    before, mark = inputs.key("1", Options()), sources.stamp(source)
    store.write("companions/beside/summary.json", b"[]")
    assert Inputs(source.url, tmp_path, 1.0).key("1", Options()) != before
    assert sources.stamp(source) != mark


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    with pytest.raises(CampaignError, match="no run folder"):
        Campaign(f"{bucket}/nothing", f"{bucket}/results")
    with pytest.raises(DestinationError, match="run the same command again"):
        Store("s3://not-there/results").write("one", b"1")


def test_a_bucket_that_refuses_loses_nothing(
    bucket: str, answer: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(f"{bucket}/kept")
    store.write("one", b"1")
    answer("0")
    with pytest.raises(DestinationError, match=r"kept/two: access refused; do the credentials reach .* again to go on"):
        store.write("two", b"2")
    assert main(["campaign", "status", f"{bucket}/results"]) == 3
    assert "access refused; do the credentials reach this place?" in capsys.readouterr().err
    answer("inf")
    assert store.read_all("") == {"one": b"1"}


@pytest.mark.parametrize("requests", [0, 2, 4])
def test_a_bucket_that_begins_to_refuse_is_gone_on_with(
    requests: int, run: Path, bucket: str, answer: Callable[[str], None]
) -> None:
    campaign = Campaign(run, f"{bucket}/refused{requests}")
    answer(str(requests))
    with pytest.raises(CampaignError, match="access refused; do the credentials reach this place"):
        campaign.one()
    answer("inf")
    assert [one["state"] for one in campaign.one()] == ["done"]


def test_missing_credentials_are_named(
    run: Path, bucket: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    fsspec.filesystem("s3").clear_instance_cache()
    try:
        for step in (["status", f"{bucket}/results"], ["one", str(run), "-o", f"{bucket}/others"]):
            assert main(["campaign", *step]) == 3
            [line] = capsys.readouterr().err.splitlines()
            assert "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in line
    finally:
        fsspec.filesystem("s3").clear_instance_cache()
