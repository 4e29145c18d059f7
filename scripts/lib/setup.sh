#!/usr/bin/env bash
# Shared by the scripts of this folder: messages, and the packages that a role needs.
# To be sourced by a script that says `set -euo pipefail`.
# shellcheck disable=SC2034  # some variables are for the scripts that source this

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cores=$(nproc 2>/dev/null || echo 2)

say() { printf '%s\n' "$*"; }
fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# packages ROLE...: the lines "package|proof" of the list scripts/packages, without blanks.
packages() {
  local role
  for role in "$@"; do
    awk -F'|' -v role="$role" '!/^#/ { gsub(/[ \t]/, "", $1); if ($1 == role) { gsub(/[ \t]/, "", $2); gsub(/[ \t]/, "", $3); print $2 "|" $3 } }' \
      "$repository/scripts/packages"
  done
}

# proven PROOF: whether a header (its name has a dot) or a program is there.
proven() {
  local folder
  case "$1" in
    *.*)
      for folder in /usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu"; do
        [ -e "$folder/$1" ] && return 0
      done
      # Anywhere else that the compiler looks: CPATH, or a prefix of its own.
      command -v g++ >/dev/null && printf '#include <%s>\n' "$1" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1
      ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# missing_packages ROLE...: names the packages whose proof is not there.
missing_packages() {
  local package proof
  packages "$@" | while IFS='|' read -r package proof; do
    proven "$proof" || printf '%s\n' "$package"
  done
}

# ensure_packages YES ROLE...: installs what is missing. Asks first, unless YES is 1.
ensure_packages() {
  local yes=$1 missing as_root=() answer
  shift
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  say "These Debian packages are missing: $missing"
  command -v apt-get >/dev/null || fail "there is no apt-get here; install what these packages hold, then run this again"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "neither root nor sudo; ask an administrator for: apt-get install --no-install-recommends $missing"
    as_root=(sudo)
  fi
  if [ "$yes" -ne 1 ]; then
    [ -t 0 ] || fail "nobody to ask; run this again with --yes, or: apt-get install --no-install-recommends $missing"
    read -r -p "Install them with ${as_root[*]:+sudo }apt-get? [Y/n] " answer
    case "$answer" in "" | [yY]*) ;; *) fail "nothing was installed" ;; esac
  fi
  if ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -q || fail "apt-get update failed"
  fi
  # shellcheck disable=SC2086  # the list is words
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing ||
    fail "apt-get could not install: $missing"
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -z "$missing" ] || fail "installed, but still not found: $missing"
}

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

# binary_folder PRESET: where that preset of CMakePresets.json builds.
binary_folder() {
  case "$1" in release) say "$repository/build" ;; *) say "$repository/build-$1" ;; esac
}

# seconds_since START: whole seconds since `START=$SECONDS`.
seconds_since() { say "$((SECONDS - $1)) s"; }
