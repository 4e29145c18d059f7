#!/usr/bin/env bash
# The parts of scripts/gpu-suite, and what is at hand for them. To be sourced behind gpu_suite.sh.
# shellcheck disable=SC2154  # out, build, budget, quick: gpu-suite sets them; status, took, limit: gpu_suite.sh

facts=() # names, in order
declare -A fact
know() { facts+=("$1") && fact[$1]=$2; }
nvcc="" sanitizer="" torch_pythons=() source_commit=""
with_libraries=(env) # before a program of keel: its loader finds NVIDIA's libraries. PyTorch brings its own

# look_around: what is at hand and what is not, and why. Nothing here takes long, even where a driver hangs.
look_around() {
  local name driver memory capability line version library why loader=""
  IFS=, read -r name driver memory capability < <(ask 20 nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader -i 0) || true
  know gpu "${name:-unknown: nvidia-smi does not answer}"
  know memory "${memory# }"
  driver=${driver# }
  know driver "${driver:-unknown}$(ask 20 nvidia-smi | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/, for CUDA up to \1/p')"
  architectures=${KEEL_CUDA_ARCHITECTURES:-$(architecture_of "$capability" || say native)}
  know architectures "$architectures"
  know processors "$cores"

  if nvcc=$(find_nvcc); then
    know nvcc "$(ask 20 "$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p') ($nvcc)"
  else
    know nvcc "not found in CUDA_HOME, PATH or /usr/local/cuda/bin"
  fi
  if [ -n "$nvcc" ]; then
    while IFS='|' read -r name version _ library why; do
      if [ -n "$library" ]; then
        know "$name" "$version ($library)"
        loader+=":$(dirname "$library")"
      else
        know "$name" "$why"
      fi
    done < <(ask 60 scripts/lib/cuda_libraries "$nvcc")
  fi
  loader=$(tr ':' '\n' <<<"$loader" | awk 'NF && !seen[$0]++' | paste -sd:)
  [ -z "$loader" ] || with_libraries+=("LD_LIBRARY_PATH=$loader${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")

  sanitizer=$(command -v compute-sanitizer) || for line in "$(dirname "${nvcc:-/}")" "$(dirname "${nvcc:-/}")/../compute-sanitizer"; do
    [ ! -x "$line/compute-sanitizer" ] || sanitizer=$line/compute-sanitizer
  done
  know compute-sanitizer "${sanitizer:-not found in PATH or beside nvcc}"
  version=""
  while IFS= read -r line; do
    name=$(ask 20 "$line" -c 'import importlib.metadata as m; print(m.version("torch"))')
    [ -z "$name" ] || torch_pythons+=("$line") version+="${version:+, }$name ($line)"
  done < <(type -aP python3 python | awk '!seen[$0]++')
  know PyTorch "${version:-in no python3 or python of PATH}"
  if [ -n "${KEEL_DEPS:-}" ] && [ -d "$KEEL_DEPS/lib/cmake/GTest" ]; then
    know GoogleTest "of $KEEL_DEPS"
  elif proven gtest/gtest.h; then
    know GoogleTest "of this system"
  else
    know GoogleTest "not found: there are no tests without it (scripts/bundle-deps fills a folder for KEEL_DEPS)"
  fi
  source_commit=$(commit_of_sources)
}

# commit_of_sources: and where they are not exactly a commit's, a sum that tells them from others.
commit_of_sources() {
  local hash sum
  if hash=$(git rev-parse --short=10 HEAD 2>/dev/null); then
    [ -n "$(git status --porcelain --untracked-files=no)" ] || { say "$hash" && return; }
    hash+=" with changes"
  else
    hash=${KEEL_COMMIT:-no commit}
  fi
  sum=$({ git ls-files -z 2>/dev/null ||
    find . \( -path './.?*' -o -path './build*' -o -path ./runs -o -path "./${out#"$PWD/"}" -o -name __pycache__ \) -prune -o -type f -print0; } |
    sort -z | xargs -0 sha256sum 2>/dev/null | sha256sum | cut -c1-8)
  say "$hash, sources $sum"
}
# part_commit: what the part that begins is of: the sources, or those that its programs were built from.
part_commit() {
  case "$part" in
    build | peers) say "$source_commit" ;;
    *) cat "$build/gpu_suite_commit" 2>/dev/null || say "unknown" ;;
  esac
}

programs_of() { # PART
  case "$1" in tests | sanitize) say tests/test_cuda ;; bench) say bench_gpu ;; esac
}
# has_programs STEP: whether what the part runs was built; else the step is noted as failed.
has_programs() {
  local program why
  for program in $(programs_of "$part"); do
    [ ! -x "$build/$program" ] || continue
    why="$build/$program was not built"
    ! grep -q 'GoogleTest was not found' "$out/build/configure.log" 2>/dev/null || why+=": configuring found no GoogleTest"
    note "$1" failed "" "" "$why"
    return 1
  done
  [ "$(part_commit)" = "$source_commit" ] || say "$part: its programs are of $(part_commit), the sources here of $source_commit"
  keel_env
}
keel_env() { limited 30 "$out/$part/env.txt" "${with_libraries[@]}" "$build/keel" env; }

part_build() {
  local program fresh=() cache=$build/CMakeCache.txt
  begin build "${budget[build]}"
  # What a part finds is of this build, or it is not there.
  rm -f "$build"/{keel,bench_gpu,tests/test_cuda,gpu_suite_commit}
  [ -n "$nvcc" ] || { note configure failed "" "" "nvcc was ${fact[nvcc]}" && return; }
  for program in cmake ninja g++; do
    command -v "$program" >/dev/null || { note configure failed "" "" "there is no $program in PATH" && return; }
  done
  if [ -e "$cache" ] && ! { grep -qx "CMAKE_HOME_DIRECTORY:INTERNAL=$repository" "$cache" && grep -qx "KEEL_NVCC:[A-Z]*=$nvcc" "$cache"; }; then
    fresh=(--fresh) # of other sources or another nvcc
  fi
  step configure 90 cmake --preset cuda -B "$build" "${fresh[@]}" -DKEEL_NVCC="$nvcc" -DKEEL_CUDA_ARCHITECTURES="$architectures" \
    -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF ${KEEL_DEPS:+-DKEEL_DEPS="$KEEL_DEPS"} || return 0
  cp "$build/cuda_libraries.tsv" "$out/build/libraries.tsv"
  sed 's/^/build: /; s/\t/: /' "$out/build/libraries.tsv"
  say "$source_commit" >"$build/gpu_suite_commit"
  # Whatever fails: the rest is compiled, and all errors are seen at once.
  step compile "$(left)" cmake --build "$build" --parallel "$cores" --target gpu_suite -- -k 0 || true
  cp "$build/.ninja_log" "$out/build/ninja_log" 2>/dev/null || true
  [ ! -x "$build/keel" ] || keel_env
}

part_tests() {
  begin tests "${budget[tests]}"
  has_programs tests || return 0
  step tests "$(left)" "${with_libraries[@]}" ctest --test-dir "$build" -L '^gpu$' --parallel "$cores" --timeout 60 --no-tests=error \
    --output-on-failure || true
  cp "$build/Testing/Temporary/LastTest.log" "$out/tests/" 2>/dev/null || true
}

# sanitizer_filter TOOL: the tests in the section "TOOL:" of the set, as a filter of GoogleTest.
sanitizer_set=tests/cuda/sanitizer_set
sanitizer_filter() {
  awk -v section="$1:" '/^[a-z]+:$/ { inside = $0 == section; next }
    inside && NF && !/^#/ { printf "%s%s", colon, $1; colon = ":" }' "$sanitizer_set"
}

part_sanitize() {
  local tool filter limit
  begin sanitize "${budget[sanitize]}"
  has_programs memcheck || return 0
  [ -n "$sanitizer" ] || { note memcheck skipped "" "" "compute-sanitizer was ${fact[compute-sanitizer]}" && return; }
  if ! awk '!/^(#|$)/ && NF != 1 { exit 1 }' "$sanitizer_set"; then
    note memcheck failed "" "" "$sanitizer_set must be there, with the sections 'memcheck:' and 'racecheck:', a test a line"
    return
  fi
  for tool in memcheck racecheck; do
    filter=$(sanitizer_filter "$tool")
    [ -n "$filter" ] || { note "$tool" failed "" "" "$sanitizer_set has no tests for it" && continue; }
    limit=$(left)
    [ "$tool" = racecheck ] || limit=$((limit / 2))
    run "$tool" "$limit" "${with_libraries[@]}" "$sanitizer" --tool "$tool" --error-exitcode 9 \
      "$build/tests/test_cuda" --gtest_filter="$filter"
    if grep -q 'Device not supported' "$out/sanitize/$tool.log"; then
      note "$tool" skipped "$took" "$limit" "compute-sanitizer says: Device not supported"
    elif grep -q 'Running 0 tests' "$out/sanitize/$tool.log"; then
      note "$tool" failed "$took" "$limit" "no test is called $filter"
    else
      judge "$tool" || true
    fi
  done
}

# measure STEP SECONDS GROUP OPTION...: a group of bench_gpu's cases.
measure() {
  local limit=$2
  step "$1" "$limit" "${with_libraries[@]}" "$build/bench_gpu" "$out/bench/$3.jsonl" --only "$3/" \
    --seconds-limit $((limit > 60 ? limit - 20 : limit * 2 / 3)) "${quick[@]}" "${@:4}"
}
# Later groups get what earlier ones leave. Behind a case that ended the program, or the device, another process goes on.
part_bench() {
  local group share end again
  begin bench "${budget[bench]}"
  has_programs training || return 0
  for group in training:45 matmul:50 attention:40 memory:100; do
    share=${group#*:} group=${group%:*} end=$((SECONDS + $(left) * share / 100))
    measure "$group" $((end - SECONDS)) "$group" && continue
    for again in 2 3 4; do
      case "$status" in 0 | 1 | 124 | "") break ;; esac
      [ "$end" -gt "$SECONDS" ] || break
      measure "$group-$again" $((end - SECONDS)) "$group" --resume || true
    done
  done
}

part_peers() {
  local python why="PyTorch is ${fact[PyTorch]}" batch
  begin peers "${budget[peers]}"
  for python in "${torch_pythons[@]}"; do
    limited 90 "$out/peers/look.log" "$python" -c 'import torch, sys; sys.exit(0 if torch.cuda.is_available() else "this PyTorch sees no GPU")'
    if [ "$status" -eq 0 ]; then
      batch=$(sed -n 's/.*"case":"gpt2 124M",.*"batch":\([0-9]*\).*/\1/p' "$out/bench/training.jsonl" 2>/dev/null | head -n 1)
      # A case that has begun, such as one that compiles, may take a minute.
      step pytorch "$(left)" "$python" bench/peers/gpu.py "$out/peers/pytorch.jsonl" --batch "${batch:-64}" \
        --seconds-limit $(($(left) > 120 ? $(left) - 60 : $(left) / 2)) "${quick[@]}" || true
      return
    fi
    why="$python: $(tail -n 1 "$out/peers/look.log" 2>/dev/null)"
  done
  note pytorch skipped "" "" "$why"
}
