#!/usr/bin/env bash
# Builds the engine for a CUDA device, checks that the device decides as the CPU does, and measures it.
# Ends within 8 minutes: every step is stopped at its limit, and what it had done is kept.
set -euo pipefail

usage() {
    cat <<'END'
Usage: benches/gpu.sh --model PATH.gguf [--out FOLDER] [--device cuda|cpu] [--records N] [--binaries FOLDER]

  --model     a GGUF file, or a safetensors directory; never fetched
  --out       where results go [runs/gpu-DEVICE]; gpu.json names machine, steps and figures
  --device    cuda; cpu runs every step on the portable CPU path with tiny sizes, as a rehearsal
  --records   records of the run [10000 on cuda, 8 on cpu]
  --binaries  a folder with `engine`, `numerics` and `it`, built elsewhere with
              cargo build --release -p engine --features cuda --bin engine --example numerics --test it
              (`it` is target/release/deps/it-HASH); then neither cargo nor nvcc is needed

Exit codes: 0 all steps passed, 1 a step failed, 2 wrong usage, 3 something is missing on this machine.
END
}

# Seconds that all steps may take together, and that one may leave unused before it is not begun.
total_s=470
least_s=5

fail() {
    echo "gpu.sh: $1" >&2
    exit "$2"
}

model='' out='' device=cuda records='' binaries=''
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h)
        usage
        exit 0
        ;;
    --model | --out | --device | --records | --binaries)
        [ $# -ge 2 ] || fail "$1 needs a value; see --help" 2
        printf -v "${1#--}" '%s' "$2"
        shift 2
        ;;
    *) fail "unknown argument $1; see --help" 2 ;;
    esac
done
[ -n "$model" ] || fail "--model is missing; see --help" 2
[ -e "$model" ] || fail "$model: no such model; fetch one with \`engine pull NAME\`" 2
[[ $records =~ ^([1-9][0-9]*)?$ ]] || fail "--records $records: use a whole number from 1" 2

# What a step runs with: a rehearsal must end on two cores.
case $device in
cuda)
    features=(--features cuda) engine_device=cuda
    records=${records:-10000} batch_tokens=8192 limit=40
    bench=(--prefix-len 700 --record-len 150 --records 500 --concurrency 512 --rounds 2)
    ;;
cpu)
    features=() engine_device=cpu-portable
    records=${records:-8} batch_tokens=1024 limit=1
    bench=(--prefix-len 120 --record-len 30 --records 4 --concurrency 4 --rounds 1)
    ;;
*) fail "--device $device: use cuda or cpu" 2 ;;
esac

model=$(realpath "$model")
caller=$PWD
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${out:-$root/runs/gpu-$device}")
[ -z "$binaries" ] || binaries=$(cd "$caller" && realpath "$binaries")
cd "$root"

missing=()
need() {
    command -v "$1" >/dev/null || missing+=("$1 ($2)")
}
need timeout "GNU coreutils"
if [ "$device" = cuda ]; then
    need nvidia-smi "the NVIDIA driver; without it no device can be used"
    if [ -z "$binaries" ]; then
        home=${CUDA_HOME:-/usr/local/cuda}
        [ ! -x "$home/bin/nvcc" ] || export PATH="$home/bin:$PATH" CUDA_HOME="$home"
        need nvcc "the CUDA toolkit; set CUDA_HOME to its folder, or pass --binaries"
    fi
fi
if [ -z "$binaries" ]; then
    need cargo "Rust, see README.md; or pass --binaries"
    need cc "a C compiler; or pass --binaries"
else
    for name in engine numerics it; do
        [ -x "$binaries/$name" ] || missing+=("$binaries/$name (see --help)")
    done
fi
if [ ${#missing[@]} -gt 0 ]; then
    echo "gpu.sh: missing on this machine:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    exit 3
fi
if [ "$device" = cuda ] && ! nvidia-smi >/dev/null 2>&1; then
    fail "nvidia-smi finds no device: $(nvidia-smi 2>&1 | head -n 1)" 3
fi
# The toolkit's libraries, where the loader does not know them.
[ -z "${CUDA_HOME:-}" ] ||
    export LD_LIBRARY_PATH="$CUDA_HOME/lib64:$CUDA_HOME/lib:${LD_LIBRARY_PATH:-}"

mkdir -p "$out"
rm -f "$out/gpu.json" "$out/bench.json" "$out/bench.svg"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One line of text as a JSON string.
quoted() {
    local text=$1
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    printf '"%s"' "${text//[[:cntrl:]]/ }"
}

# A file's lines as a JSON array of strings.
quoted_lines() {
    local line separator=''
    printf '['
    if [ -f "$1" ]; then
        while IFS= read -r line; do
            printf '%s%s' "$separator" "$(quoted "$line")"
            separator=', '
        done <"$1"
    fi
    printf ']'
}

steps='' failed=()
# step NAME LIMIT_S COMMAND...: standard output goes to OUT/NAME.txt, standard error to OUT/NAME.log.
step() {
    local name=$1 limit_s=$2 left=$((total_s - SECONDS)) began=$SECONDS status=0
    shift 2
    [ "$limit_s" -le "$left" ] || limit_s=$left
    if [ "$limit_s" -lt "$least_s" ]; then
        echo "-- $name: no time left" >&2
        status=124
        rm -f "$out/$name.txt" "$out/$name.log"
    else
        echo "-- $name, at most $limit_s s" >&2
        # An interrupted run keeps what it has; a process that does not end is killed.
        timeout --signal=INT --kill-after="$least_s" "$limit_s" "$@" \
            >"$out/$name.txt" 2>"$out/$name.log" || status=$?
    fi
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
        failed+=("$name (stopped at its limit)")
    elif [ "$status" -ne 0 ]; then
        failed+=("$name")
    fi
    if [ "$status" -ne 0 ]; then
        echo "-- $name ended with $status after $((SECONDS - began)) s; last lines of $out/$name.log:" >&2
        tail -n 12 "$out/$name.log" 2>/dev/null | sed 's/^/   /' >&2 || true
    else
        echo "-- $name passed in $((SECONDS - began)) s" >&2
    fi
    steps+="${steps:+, }{\"name\": \"$name\", \"seconds\": $((SECONDS - began)), \"exit\": $status}"
    return "$status"
}

if [ -z "$binaries" ]; then
    if ! step build 300 cargo build --release -p engine "${features[@]}" --bin engine \
        --example numerics --test it --message-format=json-render-diagnostics; then
        fail "nothing runs without the build; if it was stopped, run it again: what is built stays built" 1
    fi
    built() {
        sed -n "s/.*\"name\":\"$1\".*\"executable\":\"\([^\"]*\)\".*/\1/p" "$out/build.txt" | tail -n 1
    }
    engine=$(built engine) numerics=$(built numerics) tests=$(built it)
    rm -f "$out/build.txt"
else
    engine=$binaries/engine numerics=$binaries/numerics tests=$binaries/it
fi
for binary in "$engine" "$numerics" "$tests"; do
    if absent=$(ldd "$binary" | grep 'not found'); then
        fail "$binary: libraries are missing; add their folders to LD_LIBRARY_PATH:
$absent" 3
    fi
done

# Equality on tiny models. The binary finds its fixtures by the package's folder.
export ENGINE_TEST_DEVICE=$device CARGO_MANIFEST_DIR=$root/crates/engine
step tests 60 "$tests" --test-threads 4 packing:: reference:: generate:: \
    bench::the_portable_path bench::an_evicted_prefix || true
unset CARGO_MANIFEST_DIR
count() {
    sed -n "s/^test result:.* \([0-9]*\) $1.*/\1/p" "$out/tests.txt" 2>/dev/null | tail -n 1
}
passed=$(count passed)
[ "${passed:-0}" -gt 0 ] || failed+=("tests (none ran)")

# The corpus again and again, every copy with its own ids and titles, so that each record is asked.
for ((copy = 1; copy <= (records + 999) / 1000; copy++)); do
    sed -E -e '/^[][]$/d' -e 's/,$//' \
        -e "s/\"number\":([0-9]+),\"state\":(\"[A-Z]+\"),\"title\":\"/\"number\":$copy\1,\"state\":\2,\"title\":\"[$copy] /" \
        fixtures/issues-1000.json
done | sed -n "1,${records}p" >"$work/records.jsonl"

# The real model: logits and decisions against f32 on the CPU.
plan=fixtures/plans/issue-kind.toml
step decisions 100 "$numerics" --plan $plan --input "$work/records.jsonl" --model "$model" \
    --device "$engine_device" --limit "$limit" || true

step run 90 "$engine" run $plan --input "$work/records.jsonl" \
    --model "$model" --device "$engine_device" --batch-tokens "$batch_tokens" --no-store \
    --out "$work/run" || true
usage_json=null
if [ -f "$work/run/usage.json" ]; then
    usage_json=$(cat "$work/run/usage.json")
fi

step bench 120 "$engine" bench prefix --model "$model" --device "$engine_device" "${bench[@]}" \
    --batch-tokens "$batch_tokens" --arms shared,unshared --out "$out" || true

first_line() {
    "$@" 2>/dev/null | head -n 1 || true
}
gpu='' driver='' gpu_memory=''
if [ "$device" = cuda ]; then
    IFS=, read -r gpu driver gpu_memory < <(
        first_line nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    ) || true
fi
cat >"$out/gpu.json" <<END
{
  "benchmark": "gpu",
  "schema": 1,
  "date": "$(date -u +%Y-%m-%d)",
  "commit": $(quoted "$(first_line git rev-parse HEAD)"),
  "device": "$device",
  "machine": {
    "gpu": $(quoted "$gpu"),
    "driver": $(quoted "${driver# }"),
    "gpu_memory": $(quoted "${gpu_memory# }"),
    "nvcc": $(quoted "$(nvcc --version 2>/dev/null | grep release || true)"),
    "cpu": $(quoted "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)"),
    "cores": $(getconf _NPROCESSORS_ONLN),
    "rustc": $(quoted "$(first_line rustc --version)")
  },
  "model": $(quoted "$(basename "$model")"),
  "steps": [$steps],
  "tests": {"passed": ${passed:-0}, "failed": $(failures=$(count failed) && echo "${failures:-0}")},
  "decisions": $(quoted_lines "$out/decisions.txt"),
  "run": {"records": $records, "batch_tokens": $batch_tokens, "usage": $usage_json}
}
END
echo "results in $out: gpu.json, bench.json, bench.svg, and each step's output" >&2
if [ ${#failed[@]} -gt 0 ]; then
    fail "failed: ${failed[*]}" 1
fi
