#!/usr/bin/env python3
"""Run OpenVINO GenAI as a peer: continuous batching, prefix caching on, one output token per record.

Installs pinned packages into a virtual environment, starts itself again with that environment's Python,
loads one GGUF, and prints one JSON object on stdout. It knows nothing of the engine: the prompts file is
all that the two share. Python 3.10 or later, standard library only outside the environment.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import time
import venv

from common import (
    DEFAULT_WORK,
    Deadline,
    OutOfTime,
    PeerError,
    die_with_parent,
    finish,
    log,
    processor,
    read_prompts,
    run_step,
    stop_group,
)

REQUIREMENTS = ["openvino-genai==2026.4.1.0", "openvino-tokenizers==2026.4.1.0"]


def install(work, deadline):
    """Makes the environment unless WORK holds it already with these packages; returns its Python."""
    folder = work / "openvino"
    python = folder / "bin" / "python"
    stamp = folder / "peer.json"
    identity = json.dumps(REQUIREMENTS)
    if python.exists() and stamp.exists() and stamp.read_text() == identity:
        return python
    work.mkdir(parents=True, exist_ok=True)
    log(f"build: venv {folder.name}")
    venv.create(folder, with_pip=True, clear=True)
    run_step([python, "-m", "pip", "install", *REQUIREMENTS], work / "openvino.log", deadline)
    stamp.write_text(identity)
    return python


def start_inside(python, arguments):
    """Runs this script with the environment's Python and passes its output on."""
    command = [str(python), __file__, "--inside", *arguments.given]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )
    try:
        return process.wait(timeout=arguments.limit)
    except subprocess.TimeoutExpired:
        raise OutOfTime(f"not done within {arguments.limit} s; raise --limit") from None
    finally:
        if process.poll() is None:
            stop_group(process)


class Pipeline:
    """A loaded model with its prefix cache."""

    def __init__(self, arguments):
        # Found in the environment only.
        import openvino_genai

        self.genai = openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = True
        scheduler.cache_size = arguments.cache_gib
        properties = {"INFERENCE_NUM_THREADS": arguments.threads}
        for text in arguments.property:
            name, _, value = text.partition("=")
            properties[name] = value
        started = time.perf_counter()
        try:
            self.pipeline = openvino_genai.ContinuousBatchingPipeline(
                str(arguments.model), scheduler, "CPU", properties
            )
        except RuntimeError as error:
            # Its first lines name source files of the library.
            reason = str(error).strip().splitlines()[-1]
            raise PeerError(f"{arguments.model.name}: OpenVINO refuses it: {reason}") from None
        self.load_s = time.perf_counter() - started

    def config(self, labels=None):
        config = self.genai.GenerationConfig()
        config.max_new_tokens = 1
        config.do_sample = False
        config.apply_chat_template = False
        if labels:
            pattern = "(" + "|".join(re.escape(label).replace("\\ ", " ") for label in labels) + ")"
            config.structured_output_config = self.genai.StructuredOutputConfig(regex=pattern)
        else:
            config.ignore_eos = True
        return config

    def generate(self, prompts, config):
        """Returns seconds and one result per prompt; all prompts are given at once."""
        started = time.perf_counter()
        results = self.pipeline.generate(prompts, [config] * len(prompts))
        return time.perf_counter() - started, results


def measure(pipeline, prompts, batch):
    """Warms the prefix, then gives the records in batches; returns the measured part of the result."""
    one = pipeline.config()
    cold_s, _ = pipeline.generate([prompts.prefix], one)
    # The cache keeps whole blocks, so that the last few tokens of the prefix are always computed.
    warm_s, warm = pipeline.generate([prompts.prefix], one)
    whole = [prompts.prefix + text for text in prompts.records]
    seconds = 0.0
    results = []
    for first in range(0, len(whole), batch):
        taken, part = pipeline.generate(whole[first : first + batch], one)
        seconds += taken
        results += part
    prefix_tokens = warm[0].perf_metrics.get_num_input_tokens()
    prompt_tokens = [result.perf_metrics.get_num_input_tokens() for result in results]
    record_tokens = sum(prompt_tokens) - prefix_tokens * len(results)
    return {
        "finished": True,
        "records": len(results),
        "records_asked": len(whole),
        "seconds": round(seconds, 6),
        "records_per_s": round(len(results) / seconds, 4),
        "record_tokens_per_s": round(record_tokens / seconds, 2),
        "prefix_tokens": prefix_tokens,
        "prompt_tokens": sum(prompt_tokens),
        "record_tokens": record_tokens,
        "prefix_cold_s": round(cold_s, 6),
        "prefix_warm_s": round(warm_s, 6),
        "cache_use_max_percent": round(100 * pipeline.pipeline.get_metrics().max_cache_usage, 1),
        "contents": [result.m_generation_ids[0] for result in results],
    }


def read_labels(pipeline, prompts):
    """Asks again with a grammar that allows the labels alone; returns the label of each record.

    None where the first token is only a piece of a label, such as a lone space: the grammar allows those
    too, and they do not tell which label is the most probable one.
    """
    tokenizer = pipeline.pipeline.get_tokenizer()

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).input_ids

    firsts = [int(encode(label).data[0][0]) for label in prompts.labels]
    if len(set(firsts)) < len(firsts):
        raise PeerError("--labels: two labels begin with the same token, so that one token does not tell them apart")
    whole = [encode(prompts.prefix + text) for text in prompts.records]
    _, results = pipeline.generate(whole, pipeline.config(prompts.labels))
    tokens = [result.m_generation_ids[0][-1] for result in results]
    return [prompts.labels[firsts.index(token)] if token in firsts else None for token in tokens]


def run_inside(arguments):
    prompts = read_prompts(arguments.prompts, arguments.records)
    if arguments.labels and not prompts.labels:
        raise PeerError(f"{arguments.prompts}: --labels needs the list `labels` in its first line")
    pipeline = Pipeline(arguments)
    measured = measure(pipeline, prompts, arguments.batch or len(prompts.records))
    if arguments.labels:
        measured["labels"] = read_labels(pipeline, prompts)
    head = {
        "peer": "OpenVINO GenAI ContinuousBatchingPipeline",
        "source": " ".join(REQUIREMENTS),
        "version": pipeline.genai.get_version(),
        "threads": arguments.threads,
        "batch": arguments.batch,
        "properties": arguments.property,
        "cpu": processor(),
        "model": arguments.model.name,
        "model_bytes": arguments.model.stat().st_size,
        "load_s": round(pipeline.load_s, 3),
    }
    print(json.dumps({**head, **measured}, indent=1))
    return 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--work", type=pathlib.Path, default=DEFAULT_WORK, help="folder of the environment (default: %(default)s)")
    add("--build-only", action="store_true", help="install and stop")
    add("--inside", action="store_true", help=argparse.SUPPRESS)
    add("--model", type=pathlib.Path, help="GGUF file to load")
    add("--prompts", type=pathlib.Path, help='JSONL of {"prefix": ..., "record": ...}')
    add("--records", type=int, help="take the first N prompts only (default: all)")
    add("--labels", action="store_true", help="then ask again, held to the labels, outside the time")
    add("--batch", type=int, default=0, help="prompts given at once (default: all)")
    add("--threads", type=int, default=2, help="inference threads (default: %(default)s)")
    add("--cache-gib", type=int, default=4, help="size of the KV cache (default: %(default)s)")
    add("--property", action="append", default=[], metavar="NAME=VALUE", help="one more property of the device")
    add("--build-limit", type=float, default=3600, help="seconds for installing (default: %(default)s)")
    add("--limit", type=float, default=900, help="seconds for loading and running (default: %(default)s)")
    arguments = parser.parse_args()
    arguments.given = sys.argv[1:]
    if not arguments.build_only and not (arguments.model and arguments.prompts):
        parser.error("--model and --prompts are needed, or --build-only")
    if arguments.records is not None and arguments.records < 1:
        parser.error("--records must be at least 1")
    return arguments


def run(arguments):
    if arguments.inside:
        return run_inside(arguments)
    if not arguments.build_only and not arguments.model.is_file():
        raise PeerError(f"{arguments.model}: no such file; --model names a GGUF file")
    work = arguments.work.expanduser().resolve()
    python = install(work, Deadline(arguments.build_limit, "--build-limit"))
    if arguments.build_only:
        log(f"build: {python}")
        return 0
    return start_inside(python, arguments)


if __name__ == "__main__":
    sys.exit(finish(run, parse_arguments()))
