#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks a trace of OMPTARGET_MPI_TRACE and sums it up: trace.py FILE

It must be JSON in Chrome's format; every process and row must have a name; the slices
of a row must not cross each other; every arrow must have one start and one end, each
within a slice, in two processes, and must not end before it starts by more than the
clocks of the two can differ. Perfetto needs each end right behind its slice, and no
end of an arrow before its start. If not, says so and ends with 1. Prints, sorted:

    program: rows: 2
    program: submit of 160000 bytes in all: 4
    device 0: main, line 56: 4
    data, program to device 0: 4
"""

import collections
import json
import re
import sys

problems = []


def wrong(text):
    problems.append(text)


def ns(microseconds):
    return round(microseconds * 1000)


def names_of(events):
    """Names of processes, errors of their clocks in ns, names of rows."""
    processes, errors, dropped, rows = {}, {}, {}, {}
    for e in events:
        if e["ph"] != "M":
            continue
        if e["name"] == "process_name":
            text = e["args"]["name"]
            short = re.match(r"program|device \d+", text)
            if not short or not re.search(r" \(rank \d+ on host \S+, pid \d+\)$", text):
                wrong(f"odd name of a process: {text}")
            processes[e["pid"]] = short[0] if short else text
            errors[e["pid"]] = ns(e["args"].get("clock_error", 0))
            dropped[e["pid"]] = e["args"].get("dropped", 0)
        elif e["name"] == "thread_name":
            rows[e["pid"], e["tid"]] = e["args"]["name"]
    return processes, errors, dropped, rows


def check_rows(slices, rows):
    """No slice may end after the one that it begins in."""
    by_row = collections.defaultdict(list)
    for s in slices:
        by_row[s["pid"], s["tid"]].append((ns(s["ts"]), ns(s["ts"]) + ns(s["dur"]), s["name"]))
    for row, spans in by_row.items():
        if row not in rows:
            wrong(f"row {row} has no name")
        open_ones = []
        for begin, end, name in spans:
            if end <= begin:
                wrong(f"'{name}' takes no time")
            while open_ones and open_ones[-1][1] <= begin:
                open_ones.pop()
            if open_ones and end > open_ones[-1][1]:
                wrong(f"'{name}' at {begin} crosses '{open_ones[-1][2]}' in row {rows.get(row)}")
            open_ones.append((begin, end, name))
        if spans != sorted(spans, key=lambda s: (s[0], -s[1])):
            wrong(f"the slices of row {rows.get(row)} are not in order")


def check_arrows(events, errors):
    ends, slices, last = collections.defaultdict(dict), {}, None
    for e in events:
        if e["ph"] == "X":
            last = e
        if e["ph"] in "sf":
            if last is None or (e["pid"], e["tid"]) != (last["pid"], last["tid"]):
                wrong(f"an end of arrow {e['id']} is not behind its slice")
                continue
            slices[e["id"], e["ph"]] = last
            if e["ph"] in ends[e["id"]]:
                wrong(f"arrow {e['id']} has two ends '{e['ph']}'")
            ends[e["id"]][e["ph"]] = e
    arrows = []
    for number, both in ends.items():
        if len(both) != 2:
            wrong(f"arrow {number} has only an end '{list(both)[0]}'")
            continue
        start, end = both["s"], both["f"]
        source, target = slices[number, "s"], slices[number, "f"]
        if start["ts"] != source["ts"] or end["ts"] != max(start["ts"], target["ts"]):
            wrong(f"arrow {number} '{start['name']}' is not where its slices begin: {both}")
        if start["name"] != end["name"] or start["pid"] == end["pid"] or end.get("bp") != "e":
            wrong(f"arrow {number}: {start} to {end}")
        # Each time is a whole number of ns.
        slack = errors[start["pid"]] + errors[end["pid"]] + 2
        # Who waits for something, or receives it, can have begun before it was sent.
        until = target["ts"] if start["name"] == "message" else target["ts"] + target["dur"]
        if ns(until) < ns(start["ts"]) - slack:
            wrong(f"arrow {number} '{start['name']}' goes back in time by more than {slack} ns: {both}")
        arrows.append((start["name"], start["pid"], end["pid"]))
    return arrows


def main():
    with open(sys.argv[1]) as file:
        events = json.load(file)["traceEvents"]
    processes, errors, dropped, rows = names_of(events)
    slices = [e for e in events if e["ph"] == "X"]
    check_rows(slices, rows)
    arrows = check_arrows(events, errors)
    for e in events:
        if e["pid"] not in processes:
            wrong(f"process {e['pid']} has no name")
            processes[e["pid"]] = "?"

    lines = collections.Counter()
    for pid, _ in rows:
        lines[f"{processes[pid]}: rows"] += 1
    sums = collections.defaultdict(lambda: [0, None])
    for s in slices:
        total = sums[processes[s["pid"]], s["name"]]
        total[0] += 1
        if "bytes" in s.get("args", {}):
            total[1] = (total[1] or 0) + s["args"]["bytes"]
    for (process, name), (count, size) in sums.items():
        lines[f"{process}: {name}" + (f" of {size} bytes in all" if size is not None else "")] += count
    for name, a, b in arrows:
        lines[f"{name}, {processes[a]} to {processes[b]}"] += 1
    for pid, count in dropped.items():
        lines[f"{processes[pid]}: dropped"] += count
    print("\n".join(f"{line}: {count}" for line, count in sorted(lines.items())))
    if problems:
        print("\n".join(["trace.py: " + p for p in problems[:20]]), file=sys.stderr)
    return 1 if problems else 0


sys.exit(main())
