#!/usr/bin/env python3
"""Runs the engine and llama.cpp's server on the same records, alternated, and prints the ratio.

    python3 benches/peers/compare.py --engine target/release/engine --model NAME --gguf FILE \\
        --plan fixtures/plans/issue-kind.toml --input records.jsonl --records 36 --rounds 3

The engine's time includes computing the rubric once; the server's rubric is warmed outside its
time, so the ratio errs on the server's side. Loading is outside both. Run it with the machine idle.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def engine_rate(arguments, out):
    command = [
        arguments.engine, "run", arguments.plan, "--input", arguments.input, "--no-store",
        "--limit", str(arguments.records), "--model", arguments.model, "--out", out,
    ] + arguments.engine_arg
    done = subprocess.run(command, capture_output=True, text=True)
    # Exit code 3: the records past the limit were not run, as asked.
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    usage = json.loads((pathlib.Path(out) / "usage.json").read_text())
    return usage["forks"] / (usage["wall_ms"] / 1000)


def server_rate(arguments, prompts):
    command = [
        sys.executable, str(HERE / "llama_server.py"), "--model", arguments.gguf,
        "--prompts", prompts, "--records", str(arguments.records), "--limit", "900",
    ]
    if arguments.work:
        command += ["--work", arguments.work]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    report = json.loads(done.stdout)
    if report["prefix_misses"]:
        sys.exit("the server lost its prefix cache; the comparison would be unfair to it")
    return report["records_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", required=True)
    parser.add_argument("--model", required=True, help="what the engine calls it")
    parser.add_argument("--gguf", required=True, help="the same file, for the server")
    parser.add_argument("--plan", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--prompts-tool", required=True, help="the built example `prompts`")
    parser.add_argument("--records", type=int, default=36)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work")
    parser.add_argument("--engine-arg", action="append", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prompts = pathlib.Path(folder) / "prompts.jsonl"
        with prompts.open("wb") as file:
            tool = [arguments.prompts_tool, arguments.plan, arguments.input, arguments.gguf]
            subprocess.run(tool + [str(arguments.records)], check=True, stdout=file)
        ours, theirs = [], []
        for round_ in range(arguments.rounds):
            ours.append(engine_rate(arguments, str(pathlib.Path(folder) / "run")))
            theirs.append(server_rate(arguments, str(prompts)))
            print(f"round {round_ + 1}: engine {ours[-1]:.2f}, llama-server {theirs[-1]:.2f} records/s",
                  file=sys.stderr)
    result = {
        "model": arguments.model,
        "records": arguments.records,
        "engine_records_per_s": [round(rate, 3) for rate in ours],
        "llama_server_records_per_s": [round(rate, 3) for rate in theirs],
        "engine_median": round(statistics.median(ours), 3),
        "llama_server_median": round(statistics.median(theirs), 3),
        "ratio_of_medians": round(statistics.median(ours) / statistics.median(theirs), 3),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
