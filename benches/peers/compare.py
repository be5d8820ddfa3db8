#!/usr/bin/env python3
"""Runs the engine and its peers on the same prompts, alternated, and prints one table.

    python3 benches/peers/compare.py --build-only
    python3 benches/peers/compare.py --gguf MODEL.gguf --input records.jsonl --out benches/runs/NAME.json

The same file, the same rendered texts, one process per round. The engine's time always includes computing
the rubric once. The peers' rates are given twice: with the rubric warmed outside their time, and with
the time of warming it added. Loading is outside all of them. Run it with the machine idle.
Python 3.10 or later, standard library only.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

from common import DEFAULT_WORK, PeerError, finish, log, processor

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
SCRIPTS = {"llama-server": "llama_server.py", "openvino": "openvino_genai_peer.py"}
# Instruction sets that kernels of this kind choose between.
FLAGS = ["avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimddp", "i8mm"]


def machine():
    """What the figures depend on, without anything that names this very machine."""
    flags = set()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                flags = set(line.split(":", 1)[1].split())
                break
    except OSError:
        pass
    return {
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "isa": [flag for flag in FLAGS if flag in flags],
        "system": f"{platform.system()} {platform.machine()}",
    }


def sample(path, count, out):
    """Writes `count` records, evenly spaced over the input (JSONL or a JSON array), as JSONL."""
    text = path.read_text(encoding="utf-8")
    try:
        records = json.loads(text)
    except ValueError:
        records = [json.loads(line) for line in text.split("\n") if line.strip()]
    if len(records) < count:
        raise PeerError(f"{path}: {len(records)} records, but --records asks for {count}")
    taken = [records[index * len(records) // count] for index in range(count)]
    out.write_text("".join(json.dumps(record) + "\n" for record in taken), encoding="utf-8")


def child(command, place):
    """Runs one child to its end and returns its standard output."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise PeerError(f"{place}: exit status {done.returncode}\n{done.stderr.strip()}")
    return done.stdout


def engine_round(arguments, folder, records):
    """One run of the engine; returns its figures and the label of each record."""
    out = folder / "run"
    command = [arguments.engine, "run", arguments.plan, "--input", records, "--no-store"]
    child([*command, "--model", arguments.gguf, "--out", out, *arguments.engine_arg], "engine")
    usage = json.loads((out / "usage.json").read_text())
    if usage["forks"] != arguments.records:
        raise PeerError(f"the plan let the model read {usage['forks']} of {arguments.records} records; use a plan "
                        "whose predicates settle none")
    backend = json.loads((out / "manifest.json").read_text())["backend_description"]
    facts = [json.loads(line) for line in (out / "facts.jsonl").read_text(encoding="utf-8").splitlines()]
    facts.sort(key=lambda fact: fact["ordinal"])
    labels = []
    for fact in facts:
        values = list(fact["values"].values())
        if len(values) > 1:
            raise PeerError(f"{arguments.plan}: the peers answer one question; use a plan with one field")
        labels.append(values[0]["label"] if values else None)
    return {
        "records_per_s": round(usage["forks"] / (usage["wall_ms"] / 1000), 4),
        "prompt_tokens": usage["tokens_as_if_uncached"],
        "computed_tokens": usage["computed_tokens"],
        "cached_tokens": usage["cached_tokens"],
        "backend": backend,
        "labels": labels,
    }


def peer_round(arguments, peer, prompts, first):
    """One run of a peer; its labels are asked for in the first round only, outside its time."""
    command = [sys.executable, HERE / SCRIPTS[peer], "--model", arguments.gguf, "--prompts", prompts]
    command += ["--threads", arguments.threads, "--limit", arguments.limit, "--work", arguments.work]
    if first:
        command.append("--labels")
    if peer == "llama-server":
        command += [f"--server-arg={extra}" for extra in arguments.server_arg]
    if peer == "openvino":
        command += [f"--property={extra}" for extra in arguments.property]
    report = json.loads(child(command, peer))
    if report.get("prefix_misses") or report.get("prefix_warm_s", 0) > report.get("prefix_cold_s", 1) / 2:
        raise PeerError(f"{peer}: it lost its prefix cache; the comparison would be unfair to it")
    report.pop("per_record", None)
    seconds = report["seconds"] + report["prefix_cold_s"]
    report["records_per_s_with_rubric"] = round(report["records"] / seconds, 4)
    return report


def summarise(name, rounds, engine, our_labels):
    """One row of the table; `engine` is the engine's median rate."""
    warm = [report["records_per_s"] for report in rounds]
    whole = [report.get("records_per_s_with_rubric", rate) for report, rate in zip(rounds, warm)]
    row = {
        "name": name,
        "records_per_s": warm,
        "records_per_s_with_rubric": whole,
        "median": round(statistics.median(warm), 3),
        "median_with_rubric": round(statistics.median(whole), 3),
        "ratio": round(engine / statistics.median(warm), 3),
        "ratio_with_rubric": round(engine / statistics.median(whole), 3),
        "prompt_tokens": rounds[0]["prompt_tokens"],
    }
    if name != "engine":
        told = [(ours, theirs.strip()) for ours, theirs in zip(our_labels, rounds[0]["labels"]) if theirs]
        row["same_label"] = sum(ours == theirs for ours, theirs in told)
        row["labels_told"] = len(told)
    return row


def table(rows, refused):
    """Markdown, for the terminal and for a page."""
    lines = [
        "| | records/s, rubric warm | ratio | records/s, rubric included | ratio | same label | prompt tokens |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        warm = f"{row['median']:.2f} ({min(row['records_per_s']):.2f}-{max(row['records_per_s']):.2f})"
        whole = f"{row['median_with_rubric']:.2f}"
        cells = [warm, f"{row['ratio']:.2f}", whole, f"{row['ratio_with_rubric']:.2f}"]
        if row["name"] == "engine":
            # Its rubric is always inside its time.
            cells = ["", "", warm, "", ""]
        else:
            cells.append(f"{row['same_label']} of {row['labels_told']}")
        lines.append(" | ".join([f"| {row['name']}", *cells, f"{row['prompt_tokens']} |"]))
    lines += [f"| {name} | refused: {reason.splitlines()[-1]} | | | | | |" for name, reason in refused.items()]
    return "\n".join(lines)


def compare(arguments, folder):
    records = folder / "records.jsonl"
    prompts = folder / "prompts.jsonl"
    sample(arguments.input, arguments.records, records)
    tool = [arguments.prompts_tool, arguments.plan, records, arguments.gguf, arguments.records]
    prompts.write_text(child(tool, "prompts"), encoding="utf-8")
    ours, theirs, refused = [], {peer: [] for peer in arguments.peers}, {}
    for turn in range(arguments.rounds):
        ours.append(engine_round(arguments, folder, records))
        line = f"round {turn + 1}: engine {ours[-1]['records_per_s']:.2f}"
        for peer, rounds in theirs.items():
            if peer in refused:
                continue
            try:
                rounds.append(peer_round(arguments, peer, prompts, turn == 0))
                line += f", {peer} {rounds[-1]['records_per_s']:.2f}"
            except PeerError as error:
                log(str(error))
                refused[peer] = str(error).replace(str(folder), "").replace(str(arguments.gguf.parent), "")
        log(line + " records/s")
    median = statistics.median(report["records_per_s"] for report in ours)
    rows = [summarise("engine", ours, median, ours[0]["labels"])]
    rows += [summarise(peer, rounds, median, ours[0]["labels"]) for peer, rounds in theirs.items() if peer not in refused]
    return {
        "model": arguments.gguf.name,
        "records": arguments.records,
        "input": arguments.input.name,
        "plan": arguments.plan.name,
        "machine": machine(),
        "note": arguments.note,
        "table": rows,
        "refused": refused,
        "rounds": {"engine": ours, **theirs},
    }


def build(arguments):
    for peer in arguments.peers:
        command = [sys.executable, HERE / SCRIPTS[peer], "--build-only", "--work", arguments.work]
        if subprocess.run(command).returncode != 0:
            raise PeerError(f"{peer}: it could not be built; the lines above say why")


def run(arguments):
    if arguments.build_only:
        build(arguments)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        result = compare(arguments, pathlib.Path(folder))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result["table"], result["refused"]))
    return 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    release = TARGET / "release"
    add("--build-only", action="store_true", help="build or install the peers and stop")
    add("--gguf", type=pathlib.Path, help="model file, given to all of them")
    add("--plan", type=pathlib.Path, default=REPOSITORY / "fixtures" / "plans" / "issue-kind.toml")
    add("--input", type=pathlib.Path, default=REPOSITORY / "fixtures" / "issues-1000.json", help="JSONL or JSON array")
    add("--records", type=int, default=48, help="records, evenly spaced over the input (default: %(default)s)")
    add("--rounds", type=int, default=3, help="default: %(default)s")
    add("--peers", nargs="+", choices=SCRIPTS, default=list(SCRIPTS), help="default: all")
    add("--engine", type=pathlib.Path, default=release / "engine")
    add("--prompts-tool", type=pathlib.Path, default=release / "examples" / "prompts", help="the built example")
    add("--threads", type=int, default=os.cpu_count(), help="threads of each peer (default: all cores)")
    add("--work", type=pathlib.Path, default=DEFAULT_WORK, help="folder of the peers (default: %(default)s)")
    add("--limit", type=float, default=900, help="seconds that one run of a peer may take (default: %(default)s)")
    add("--engine-arg", action="append", default=[], metavar="ARG", help="one more argument of `engine run`")
    add("--server-arg", action="append", default=[], metavar="ARG", help="one more argument of llama-server")
    add("--property", action="append", default=[], metavar="NAME=VALUE", help="one more property of OpenVINO")
    add("--note", default="", help="kept with the result")
    add("--out", type=pathlib.Path, help="JSON file for every figure")
    arguments = parser.parse_args()
    if arguments.build_only:
        return arguments
    if not arguments.gguf:
        parser.error("--gguf is needed, or --build-only")
    if arguments.records < 1 or arguments.rounds < 1:
        parser.error("--records and --rounds must be at least 1")
    for path in (arguments.gguf, arguments.plan, arguments.input, arguments.engine, arguments.prompts_tool):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    arguments.gguf = arguments.gguf.resolve()
    return arguments


if __name__ == "__main__":
    sys.exit(finish(run, parse_arguments()))
