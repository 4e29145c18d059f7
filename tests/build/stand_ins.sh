# shellcheck shell=bash
# For tests of scripts whose programs are made up. To be sourced.

# link_tools FOLDER NAME...: a folder for PATH with every program of this machine's, apart from those named.
link_tools() {
  local folder=$1 places i program
  shift
  mkdir -p "$folder"
  # The first folder of PATH comes last, and wins.
  IFS=: read -r -a places <<<"$PATH"
  for ((i = ${#places[@]} - 1; i >= 0; --i)); do
    for program in "${places[i]}"/*; do
      [ ! -f "$program" ] || [ ! -x "$program" ] || printf '%s\0' "$program"
    done | xargs -r -0 ln -sf -t "$folder"
  done
  for program in "$@"; do rm -f "$folder/$program"; done
}

# put FILE: a program in sh, from the standard input.
put() {
  mkdir -p "$(dirname "$1")"
  rm -f "$1"
  { echo '#!/bin/sh' && cat; } >"$1"
  chmod +x "$1"
}
