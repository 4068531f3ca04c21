"""The sections on what is in no number: what was left out, and the frame logs."""

from __future__ import annotations

from pcitrace.report.pagekit import Section, Table, grouped
from pcitrace.results import Results
from pcitrace.runfolder import read_frame_log

__all__ = ["frame_logs", "left_out"]


def left_out(results: Results) -> Section:
    """Show what is in no number, and why."""
    rows = [
        [str(host), str(kind).replace("_", " "), str(reason), grouped(len(some))]
        for (host, kind, reason), some in results.frames.drop_log.groupby(["host", "kind", "reason"])
    ]
    rows += [
        [host, "transactions", reason, grouped(count)]
        for host, traffic in results.frames.hosts.items()
        for reason, count in traffic.unknown.items()
    ]
    for name in results.frames.hosts:
        problems = results.run[name].problems
        counts = problems.groupby("kind")["count"].sum()
        rows += [[name, "problem on the bus", str(kind), grouped(int(count))] for kind, count in counts.items()]
    if not rows:
        return Section("Left out, and why", ("Nothing: every burst belongs to a frame, and the buses kept the rules.",))
    head = ["host", "what", "why", "number"]
    return Section("Left out, and why", tables=(Table("", head, rows),))


def frame_logs(results: Results) -> Section | None:
    """Show what the hosts logged."""
    folder = results.run.folder
    entries = folder.run.get("frame_logs", []) if folder is not None else []
    if folder is None or not entries:
        return None
    rows = []
    for entry in entries:
        log = read_frame_log(folder.path / entry["file"])
        lengths = log["length_bytes"]
        size = " to ".join(map(str, sorted({lengths.min(), lengths.max()}))) if len(log) else ""
        rows.append([entry["host"], entry["kind"], grouped(len(log)), size, entry["file"]])
    text = () if folder.run.get("frames_on_bus", True) else ("These frames are not those on the bus.",)
    head = ["host", "kind", "frames", "user bytes", "file"]
    return Section("Frame logs", text, tables=(Table("", head, rows),))
