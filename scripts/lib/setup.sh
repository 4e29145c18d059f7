#!/usr/bin/env bash
# Shared by the scripts of this folder: messages, packages, and how keel is built here.
# To be sourced by a script that says `set -euo pipefail`.
# shellcheck disable=SC2034  # some variables are for the scripts that source this

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cores=$(nproc 2>/dev/null || echo 2)

say() { printf '%s\n' "$*"; }
fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# shellcheck source=scripts/lib/packages.sh
. "$repository/scripts/lib/packages.sh"
find_mpi

# find_nvcc: where the CUDA compiler is; fails when it is nowhere.
find_nvcc() {
  local candidate
  for candidate in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc || true)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
    if [ -n "$candidate" ] && [ -x "$candidate" ]; then
      say "$candidate"
      return 0
    fi
  done
  return 1
}

# find_clang SANITIZERS: the first clang++ that links a program with them; fails where none does.
find_clang() {
  local name
  for name in ${CXX:+"$CXX"} clang++ clang++-{21..14}; do
    case "$name" in *clang*) ;; *) continue ;; esac
    command -v "$name" >/dev/null || continue
    if proven "$name -fsanitize=$1"; then
      say "$name"
      return
    fi
  done
  return 1
}

# architecture_of CAPABILITY: what nvcc compiles for a card of that number ("9.0"), in CMake's words; fails where it is none.
# 9.0 has instructions of its own, under 90a.
architecture_of() {
  local number=${1//[. ]/}
  case "$number" in 90) say 90a-real ;; *[!0-9]* | "") return 1 ;; *) say "$number-real" ;; esac
}

# card_architecture: the same of the first NVIDIA GPU here; fails where nvidia-smi does not know.
card_architecture() {
  architecture_of "$(timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0)"
}

# choose_cuda WISH: sets `cuda`, the KEEL_CUDA of a build for this machine (WISH itself unless it is AUTO), and
# `architectures`, the options of CMake that name the card. CUDA costs minutes of compiling: only where it will be used, or
# when asked for, and for the card that is there.
choose_cuda() {
  local architecture nvcc
  cuda=$1 architectures=()
  if architecture=$(card_architecture 2>/dev/null); then architectures=(-DKEEL_CUDA_ARCHITECTURES="$architecture"); fi
  [ "$cuda" = AUTO ] || return 0
  cuda=OFF
  if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    if nvcc=$(find_nvcc); then
      cuda=ON
      say "nvidia-smi sees a GPU, and there is $nvcc: CUDA becomes part of the build"
    else
      say "nvidia-smi sees a GPU, but there is no nvcc in PATH or ${CUDA_HOME:-/usr/local/cuda}/bin: building for the processor alone"
    fi
  fi
}

# choose_generator FOLDER: sets `generator`, the options for CMake where a build is not by Ninja, which the presets name: there
# is none, or the folder holds a build that was begun by another one.
choose_generator() {
  local known=""
  [ ! -e "$1/CMakeCache.txt" ] || known=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$1/CMakeCache.txt")
  generator=()
  if [ -n "$known" ]; then generator=(-G "$known"); elif ! command -v ninja >/dev/null; then generator=(-G "Unix Makefiles"); fi
}

# binary_folder PRESET: where that preset of CMakePresets.json builds.
binary_folder() {
  case "$1" in release) say "$repository/build" ;; *) say "$repository/build-$1" ;; esac
}

# seconds_since START: whole seconds since `START=$SECONDS`.
seconds_since() { say "$((SECONDS - $1)) s"; }
