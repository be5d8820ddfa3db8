"""What the peers' scripts share: errors, a time limit, child processes, prompts, the machine.

Python 3.10 or later, standard library only. It knows nothing of any one peer.
"""

import ctypes
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

DEFAULT_WORK = pathlib.Path.home() / ".cache" / "engine" / "peers"
PR_SET_PDEATHSIG = 1
STOP_GRACE_S = 10
EXIT_FAILED = 1
EXIT_OUT_OF_TIME = 3


class PeerError(Exception):
    """The peer could not be built, started or asked; the message names the place and the cure."""


class OutOfTime(PeerError):
    """The run's time limit passed."""


class Deadline:
    """A point in monotonic time after which no step may go on."""

    def __init__(self, seconds, option):
        self.seconds = seconds
        self.option = option
        self.end = time.monotonic() + seconds

    def left(self):
        """Seconds left, above zero. Raises OutOfTime when there are none."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise OutOfTime(f"the limit of {self.seconds} s passed; raise {self.option}")
        return left


def log(text):
    print(text, file=sys.stderr, flush=True)


def stop_group(process):
    """Ends a child and all that it started, gently first, and waits for the child."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(timeout=STOP_GRACE_S)
            return
        except subprocess.TimeoutExpired:
            continue


def run_step(command, log_path, deadline, env=None):
    """Runs one build command at low priority, its output added to `log_path`."""
    command = [str(part) for part in command]
    log("build: " + " ".join(pathlib.Path(command[0]).name if i == 0 else part for i, part in enumerate(command)))
    limit = deadline.left()
    with open(log_path, "ab") as out:
        process = subprocess.Popen(
            ["nice", "-n", "15", *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise OutOfTime(f"{command[0]}: not done within {deadline.seconds} s; raise {deadline.option}") from None
        finally:
            if process.poll() is None:
                stop_group(process)
    if code != 0:
        raise PeerError(f"{command[0]}: exit status {code}; see {log_path}")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def processor():
    """The processor's model name, or an empty string where the system does not tell."""
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


@dataclass
class Prompts:
    """The work of one run: one prefix, the records after it, and the labels to choose from, if told."""

    prefix: str
    records: list[str]
    labels: list[str]


def read_prompts(path, records):
    """Reads the prompts of the first `records` lines, or of all when it is None."""
    prompts = None
    try:
        # Split at line feeds alone: a record may hold other characters that Python takes for line ends.
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PeerError(f"{path}: {error}") from None
    for number, line in enumerate(lines, start=1):
        if prompts and records is not None and len(prompts.records) == records:
            break
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise PeerError(f"{path}:{number}: not JSON: {error}") from None
        if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) for k in ("prefix", "record")):
            raise PeerError(f'{path}:{number}: expected an object with the strings "prefix" and "record"')
        if prompts is None:
            prompts = Prompts(entry["prefix"], [], entry.get("labels", []))
        if entry["prefix"] != prompts.prefix:
            raise PeerError(f"{path}:{number}: the prefix differs from the first line's; one file holds one prefix")
        prompts.records.append(entry["record"])
    if prompts is None:
        raise PeerError(f"{path}: no prompts")
    if records is not None and len(prompts.records) < records:
        raise PeerError(f"{path}: {len(prompts.records)} prompts, but --records asks for {records}")
    return prompts


def die_with_parent():
    """In the child: ask Linux to end it when this script dies, even of a signal that it cannot catch."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass


def finish(run, arguments):
    """Runs a peer's script to its exit status, with a line for an error that a reader can act on."""
    # As exceptions, so that children are stopped on the way out.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda caught, _: sys.exit(128 + caught))
    try:
        return run(arguments)
    except OutOfTime as error:
        log(f"error: {error}")
        return EXIT_OUT_OF_TIME
    except (PeerError, OSError) as error:
        log(f"error: {error}")
        return EXIT_FAILED
