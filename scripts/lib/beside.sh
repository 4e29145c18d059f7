#!/usr/bin/env bash
# A build that goes on in the background while the user watches a program, with a line of progress below what it prints.
# To be sourced after setup.sh by a script that says `set -euo pipefail` and calls `end_beside` when it exits.

build_name="" build_log="" build_pid="" build_state="" build_began=0 build_took=0 compiling_began=""
watched_pid=""
progress_now="" progress_shown="" progress_said=0
progress_open=0 # whether the cursor stands in a line of progress

# start_build NAME LOG COMMAND...: COMMAND in the background with its output in LOG. It is a process group of its own, so
# that it can be ended with all that it has started, and leaves the processor to what the user watches.
start_build() {
  build_name=$1 build_log=$2 build_state=running build_began=$SECONDS compiling_began=""
  shift 2
  set -m
  {
    renice -n 10 -p "$BASHPID" >/dev/null || true # where it cannot, it only is less polite
    NINJA_STATUS="[%f/%t] " "$@"
  } >"$build_log" 2>&1 </dev/null &
  build_pid=$!
  set +m
}

# watch COMMAND...: runs COMMAND, which prints whole lines, above the build's line of progress. Its exit status; when the
# build fails, COMMAND is ended early.
watch() {
  local output line part="" status
  exec {output}< <(exec "$@")
  watched_pid=$!
  while [ "$build_state" != failed ]; do
    status=0
    read -r -t 1 -u "$output" line || status=$?
    case "$status" in
      0) print_line "$part$line" && part="" ;;
      1) break ;;       # the end
      *) part+=$line ;; # a second without the end of a line
    esac
    show_progress
  done
  exec {output}<&-
  [ "$build_state" != failed ] || kill "$watched_pid" 2>/dev/null || true
  status=0
  wait "$watched_pid" || status=$?
  watched_pid=""
  return "$status"
}

# finish_build: shows progress until the build has ended; where it failed, what it said, and fails.
finish_build() {
  show_progress
  while [ "$build_state" = running ]; do
    sleep 1
    show_progress
  done
  [ "$build_state" = failed ] || return 0
  grep -vE '^\[ *[0-9]+(/[0-9]+|%)\] ' "$build_log" || true
  return 1
}

# end_beside: ends the build and what is watched, and waits until none of their processes is left.
end_beside() {
  [ "$progress_open" -eq 0 ] || say ""
  [ -z "$watched_pid" ] || kill "$watched_pid" 2>/dev/null || true
  [ -z "$watched_pid" ] || wait "$watched_pid" 2>/dev/null || true
  [ -n "$build_pid" ] || return 0
  kill -TERM -- "-$build_pid" 2>/dev/null || true
  wait "$build_pid" 2>/dev/null || true
  while kill -0 -- "-$build_pid" 2>/dev/null; do sleep 0.1; done
}

# update_build: sets build_state to built or failed once the build has ended.
update_build() {
  [ "$build_state" = running ] && ! kill -0 "$build_pid" 2>/dev/null || return 0
  if wait "$build_pid"; then build_state=built; else build_state=failed; fi
  build_took=$((SECONDS - build_began)) build_pid=""
}

# time_left DONE TOTAL SECONDS: ", about 60 s left" if the rest takes as long as what is done; nothing before a twentieth is.
time_left() {
  local left
  [ "$((20 * $1))" -ge "$2" ] && [ "$1" -gt 0 ] && [ "$1" -lt "$2" ] || return 0
  left=$(($3 * ($2 - $1) / $1))
  if [ "$left" -lt 120 ]; then say ", about $(((left + 10) / 10 * 10)) s left"; else say ", about $(((left + 30) / 60)) min left"; fi
}

# find_progress: sets progress_now, such as "building keel: 120 of 190, about 60 s left", by the last "[120/190]" of Ninja
# or "[ 63%]" of make in the log.
find_progress() {
  local finished total
  case "$build_state" in
    built) progress_now="$build_name is built: it took $build_took s" ;;
    failed) progress_now="building $build_name failed after $build_took s" ;;
    *)
      progress_now="building $build_name: configuring"
      read -r finished total < <(tail -c 4000 "$build_log" | sed -n -e 's,^\[\([0-9]*\)/\([0-9]*\)\].*,\1 \2,p' -e 's,^\[ *\([0-9]*\)%\].*,\1 100,p' | tail -n 1) || return 0
      : "${compiling_began:=$SECONDS}"
      progress_now="building $build_name: $finished of $total$(time_left "$finished" "$total" $((SECONDS - compiling_began)))"
      ;;
  esac
}

# print_line TEXT: in place of the line of progress, which is to be shown again.
print_line() {
  [ "$progress_open" -eq 0 ] || printf '\r\033[K'
  say "$1"
  progress_open=0
}

# show_progress: on a terminal a line that is drawn anew; elsewhere lines PROGRESS_EVERY seconds apart.
show_progress() {
  update_build
  find_progress
  if [ "$build_state" != running ]; then
    [ "$progress_now" = "$progress_shown" ] || print_line "$progress_now"
  elif [ -t 1 ]; then
    [ "$progress_open" -eq 1 ] && [ "$progress_now" = "$progress_shown" ] || printf '\r\033[K%s' "$progress_now"
    progress_open=1
  elif [ "$progress_now" != "$progress_shown" ] && [ "$((SECONDS - progress_said))" -ge "${PROGRESS_EVERY:-15}" ]; then
    say "$progress_now"
    progress_said=$SECONDS
  else
    return 0
  fi
  progress_shown=$progress_now
}
