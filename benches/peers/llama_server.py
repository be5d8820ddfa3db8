#!/usr/bin/env python3
"""Run llama.cpp's llama-server as a peer: one slot, prefix cache on, one output token per record.

Builds the server from a pinned source distribution, serves one GGUF on loopback, sends the prompts of a
JSONL file one after another, and prints one JSON object on stdout. It knows nothing of the engine: the
prompts file is all that the two share. Python 3.10 or later, standard library only.
"""

import argparse
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import venv

from common import (
    DEFAULT_WORK,
    EXIT_OUT_OF_TIME,
    Deadline,
    OutOfTime,
    PeerError,
    die_with_parent,
    finish,
    log,
    processor,
    read_prompts,
    run_step,
    sha256,
    stop_group,
)

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
SDIST = f"llama_cpp_python-{VERSION}.tar.gz"
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
LLAMA_CPP = pathlib.Path(f"llama_cpp_python-{VERSION}") / "vendor" / "llama.cpp"

# The package's build backend: without it pip cannot read the source distribution's metadata offline.
BACKEND = "scikit-build-core==1.1.2"
TOOLS = {"cmake": "cmake==3.31.6", "ninja": "ninja==1.13.2"}

CONFIGURE = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DGGML_CCACHE=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_COMMON=ON",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    # Off, because the build would otherwise fetch a web interface that no run here opens.
    "-DLLAMA_USE_PREBUILT_UI=OFF",
]

# Above the distance of any two logits.
LABEL_BIAS = 1000


def prepare_tools(work, log_path, deadline):
    """Returns (python, cmake, ninja); what the machine lacks is installed into WORK/tools."""
    tools = work / "tools"
    python = tools / "bin" / "python"
    if not python.exists():
        log("build: venv tools")
        venv.create(tools, with_pip=True)
    wanted = [BACKEND]
    found = {}
    for name, requirement in TOOLS.items():
        own = tools / "bin" / name
        found[name] = shutil.which(name) or own
        if found[name] == own and not own.exists():
            wanted.append(requirement)
    if len(wanted) > 1 or not (tools / "bin" / "scikit-build-core").exists():
        run_step([python, "-m", "pip", "install", *wanted], log_path, deadline)
    return python, found["cmake"], found["ninja"]


def fetch_source(work, python, log_path, deadline):
    """Downloads, verifies and unpacks the source distribution; returns the llama.cpp folder."""
    source = work / "src" / LLAMA_CPP
    unpacked = work / "src" / "unpacked"
    if unpacked.exists() and source.is_dir():
        return source
    archive = work / "sdist" / SDIST
    if not archive.exists():
        command = [python, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps", "--no-build-isolation"]
        run_step([*command, "--dest", archive.parent, f"{PACKAGE}=={VERSION}"], log_path, deadline)
    got = sha256(archive)
    if got != SDIST_SHA256:
        raise PeerError(f"{archive}: sha256 is {got}, expected {SDIST_SHA256}; delete the file and run again")
    log(f"build: unpack {SDIST}")
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(work / "src", filter="data")
        else:
            tar.extractall(work / "src")
    if not source.is_dir():
        raise PeerError(f"{archive}: no folder {LLAMA_CPP} inside")
    unpacked.write_text(SDIST_SHA256 + "\n")
    return source


def build_server(work, jobs, deadline):
    """Builds llama-server unless WORK holds it already, built with these flags; returns its path."""
    build = work / "build"
    server = build / "bin" / "llama-server"
    stamp = build / "peer.json"
    # Native code from one processor can fault on another, so the processor is part of the stamp.
    identity = json.dumps({"sdist": SDIST_SHA256, "configure": CONFIGURE, "cpu": processor()}, indent=1)
    if server.exists() and stamp.exists() and stamp.read_text() == identity:
        return server
    work.mkdir(parents=True, exist_ok=True)
    log_path = work / "build.log"
    log(f"build: output in {log_path}")
    python, cmake, ninja = prepare_tools(work, log_path, deadline)
    source = fetch_source(work, python, log_path, deadline)
    env = dict(os.environ)
    # Compiler flags from the caller's shell would make two builds differ.
    for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS", "CMAKE_GENERATOR"):
        env.pop(name, None)
    configure = [cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", source, "-B", build, *CONFIGURE]
    run_step(configure, log_path, deadline, env)
    run_step([cmake, "--build", build, "--target", "llama-server", "-j", jobs], log_path, deadline, env)
    if not server.exists():
        raise PeerError(f"{server}: the build ended well but left no server there; see {log_path}")
    stamp.write_text(identity)
    return server


class Server:
    """One running llama-server; stopped when the `with` block ends, however it ends."""

    def __init__(self, binary, arguments, log_path, deadline):
        self.deadline = deadline
        self.log_path = log_path
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.command = [str(binary), *arguments, "--host", "127.0.0.1", "--port", str(self.port)]

    def __enter__(self):
        # The server reads options from these variables; the flags printed with the result must be all of them.
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_ARG_", "GGML_", "OMP_"))}
        with open(self.log_path, "wb") as out:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
        try:
            self.wait_ready()
        except BaseException:
            stop_group(self.process)
            raise
        return self

    def __exit__(self, *_):
        stop_group(self.process)

    def wait_ready(self):
        while True:
            code = self.process.poll()
            if code is not None:
                tail = self.log_path.read_text(errors="replace").splitlines()[-8:]
                raise PeerError("\n".join([f"llama-server ended with {code} before it was ready:", *tail]))
            try:
                status, _ = self.exchange("GET", "/health", None)
                if status == 200:
                    return
            except ConnectionError:
                pass
            time.sleep(min(0.2, self.deadline.left()))

    def exchange(self, method, path, body):
        """Sends one request on a connection of its own; returns (status, body bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.deadline.left())
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError:
            raise OutOfTime(f"{path}: no answer in time; raise {self.deadline.option}") from None
        finally:
            connection.close()

    def post(self, path, fields, place):
        """Posts JSON and returns the JSON answer. `place` names the prompt in an error."""
        body = json.dumps(fields).encode()
        try:
            status, answer = self.exchange("POST", path, body)
        except (ConnectionError, http.client.HTTPException) as error:
            raise PeerError(f"{place}: llama-server broke off ({error!r}); see {self.log_path}") from None
        if status != 200:
            raise PeerError(f"{place}: status {status}: {answer.decode(errors='replace')}")
        return json.loads(answer)

    def complete(self, prompt, place, **more):
        fields = {"prompt": prompt, "n_predict": 1, "cache_prompt": True, "temperature": 0, "stream": False}
        return self.post("/completion", {**fields, **more}, place)


def measure(server, prefix, texts):
    """Warms the prefix, then sends every record in turn; returns the measured part of the result."""
    tokenize = {"content": prefix, "add_special": True, "parse_special": True}
    prefix_tokens = len(server.post("/tokenize", tokenize, "prefix")["tokens"])
    start = time.perf_counter()
    warm = server.complete(prefix, "prefix")["timings"]
    prefix_cold_s = time.perf_counter() - start
    entries = []
    finished = True
    start = time.perf_counter()
    elapsed = 0.0
    for index, text in enumerate(texts):
        sent = time.perf_counter()
        try:
            answer = server.complete(prefix + text, f"record {index}")
        except OutOfTime as error:
            log(str(error))
            finished = False
            break
        done = time.perf_counter()
        elapsed = done - start
        timings = answer["timings"]
        if answer["truncated"]:
            raise PeerError(f"record {index}: the server cut the prompt; raise --ctx-size")
        prompt_tokens = timings["cache_n"] + timings["prompt_n"]
        entries.append(
            {
                "index": index,
                "prompt_tokens": prompt_tokens,
                "cached_tokens": timings["cache_n"],
                "processed_tokens": timings["prompt_n"],
                "record_tokens": prompt_tokens - prefix_tokens,
                "seconds": round(done - sent, 6),
                "server_prompt_ms": timings["prompt_ms"],
                "content": answer["content"],
            }
        )

    def total(key):
        return sum(entry[key] for entry in entries)

    return {
        "finished": finished,
        "records": len(entries),
        "records_asked": len(texts),
        "seconds": round(elapsed, 6),
        "records_per_s": round(len(entries) / elapsed, 4) if entries else None,
        "record_tokens_per_s": round(total("record_tokens") / elapsed, 2) if entries else None,
        "prefix_tokens": prefix_tokens,
        "prompt_tokens": total("prompt_tokens"),
        "cached_tokens": total("cached_tokens"),
        "processed_tokens": total("processed_tokens"),
        "record_tokens": total("record_tokens"),
        # Two tokens of slack: the prefix's last token may merge with the record's first.
        "prefix_misses": sum(entry["cached_tokens"] < prefix_tokens - 2 for entry in entries),
        "prefix_cold_s": round(prefix_cold_s, 6),
        "warm": {"cached_tokens": warm["cache_n"], "processed_tokens": warm["prompt_n"]},
        "per_record": entries,
    }


def read_labels(server, prompts):
    """Asks again with the labels' first tokens raised above all others; returns the label of each record."""
    firsts = []
    for label in prompts.labels:
        tokens = server.post("/tokenize", {"content": label, "add_special": False}, f"label {label!r}")["tokens"]
        firsts.append(tokens[0])
    if len(set(firsts)) < len(firsts):
        raise PeerError("--labels: two labels begin with the same token, so that one token does not tell them apart")
    bias = [[token, LABEL_BIAS] for token in firsts]
    answers = []
    for index, text in enumerate(prompts.records):
        place = f"label of record {index}"
        held = server.complete(prompts.prefix + text, place, logit_bias=bias, return_tokens=True)
        answers.append(prompts.labels[firsts.index(held["tokens"][0])])
    return answers


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, default=DEFAULT_WORK, help="folder of the build (default: %(default)s)")
    parser.add_argument("--build-only", action="store_true", help="build the server and stop")
    parser.add_argument("--model", type=pathlib.Path, help="GGUF file to serve")
    parser.add_argument("--prompts", type=pathlib.Path, help='JSONL of {"prefix": ..., "record": ...}')
    parser.add_argument("--records", type=int, help="send the first N prompts only (default: all)")
    parser.add_argument("--labels", action="store_true", help="then ask again, held to the labels, outside the time")
    parser.add_argument("--threads", type=int, default=2, help="server threads (default: %(default)s)")
    parser.add_argument("--ctx-size", type=int, default=4096, help="server context, tokens (default: %(default)s)")
    parser.add_argument("--server-arg", action="append", default=[], metavar="ARG", help="one more server argument")
    parser.add_argument("--jobs", type=int, default=2, help="build jobs (default: %(default)s)")
    parser.add_argument("--build-limit", type=float, default=3600, help="seconds for the build (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=900, help="seconds for serving (default: %(default)s)")
    arguments = parser.parse_args()
    if not arguments.build_only and not (arguments.model and arguments.prompts):
        parser.error("--model and --prompts are needed, or --build-only")
    if arguments.records is not None and arguments.records < 1:
        parser.error("--records must be at least 1")
    return arguments


def run(arguments):
    work = arguments.work.expanduser().resolve()
    if not arguments.build_only:
        if not arguments.model.is_file():
            raise PeerError(f"{arguments.model}: no such file; --model names a GGUF file")
        prompts = read_prompts(arguments.prompts, arguments.records)
        if arguments.labels and not prompts.labels:
            raise PeerError(f"{arguments.prompts}: --labels needs the list `labels` in its first line")
    binary = build_server(work, arguments.jobs, Deadline(arguments.build_limit, "--build-limit"))
    if arguments.build_only:
        log(f"build: {binary}")
        return 0
    flags = ["-np", "1", "-t", str(arguments.threads), "--ctx-size", str(arguments.ctx_size), "--cache-prompt"]
    flags += ["--offline", "--no-ui", *arguments.server_arg]
    deadline = Deadline(arguments.limit, "--limit")
    serve = ["--model", str(arguments.model.resolve()), *flags]
    with Server(binary, serve, work / "server.log", deadline) as server:
        measured = measure(server, prompts.prefix, prompts.records)
        if arguments.labels and measured["finished"]:
            measured["labels"] = read_labels(server, prompts)
    head = {
        "peer": "llama.cpp llama-server",
        "source": f"{PACKAGE} {VERSION}",
        "server_flags": flags,
        "cpu": processor(),
        "model": arguments.model.name,
        "model_bytes": arguments.model.stat().st_size,
    }
    print(json.dumps({**head, **measured}, indent=1))
    return 0 if measured["finished"] else EXIT_OUT_OF_TIME


if __name__ == "__main__":
    sys.exit(finish(run, parse_arguments()))
