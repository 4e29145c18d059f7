#!/usr/bin/env bash
# What the parts of scripts/gpu-suite share: commands with a time limit, notes of how they ended, the report.
# To be sourced behind setup.sh.
# shellcheck disable=SC2154  # gpu-suite sets out, archive, deadline and this_run; gpu_parts.sh facts

part="" part_deadline=0
child="" # the command that runs now
ended=0  # whether the report was printed

# limited SECONDS LOG COMMAND...: runs a command, its output in LOG. Sets status (124: its time was over) and took. A process that
# waits for a broken device may outlive every signal: nobody waits for it longer than ten seconds.
limited() {
  local seconds=$1 log=$2 began=$SECONDS pause=0.02
  shift 2
  timeout --kill-after=5 "$seconds" "$@" >"$log" 2>&1 </dev/null &
  child=$!
  status=0
  while kill -0 "$child" 2>/dev/null; do
    if ((SECONDS - began > seconds + 10)); then
      status=124
      break
    fi
    sleep "$pause"
    ((SECONDS - began < 1)) || pause=0.2
  done
  took=$((SECONDS - began))
  [ "$status" -ne 0 ] || wait "$child" || status=$?
  child=""
  [ "$status" -ne 137 ] || [ "$took" -lt "$seconds" ] || status=124
}

# ask SECONDS COMMAND...: what it prints, or nothing when it fails or takes longer.
ask() {
  local answer
  answer=$(mktemp)
  limited "$1" "$answer" "${@:2}"
  [ "$status" -ne 0 ] || cat "$answer"
  rm -f "$answer"
}

# begin PART SECONDS: makes its folder, empty but for what is known of the machine.
begin() {
  part=$1
  part_deadline=$((SECONDS + $2 < deadline ? SECONDS + $2 : deadline))
  rm -rf "${out:?}/$part"
  mkdir -p "$out/$part"
  {
    for name in "${facts[@]}"; do printf '%s\t%s\n' "$name" "${fact[$name]}"; done
    printf 'commit\t%s\nbegan\t%s\nrun\t%s\n' "$(part_commit)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$this_run"
  } >"$out/$part/about.tsv"
  say ""
  say "== $part, at most $((part_deadline - SECONDS)) s"
}
left() { say $((part_deadline - SECONDS)); }

# note STEP STATUS SECONDS LIMIT WHY: passed, failed, cut (at its limit) or skipped.
note() {
  printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "${5//[$'\t\n']/ }" >>"$out/$part/steps.tsv"
  rm -f "$out/$part/running"
  say "$part: $1: $2${3:+ after $3 s}${5:+ ($5)}"
}

# run STEP SECONDS COMMAND...: runs it within what is left of the part, its output in STEP.log; a note must follow. Sets
# status (empty when no time was left), took and limit. Before it begins the report is written: a run that is killed leaves
# it and the archive.
run() {
  local name=$1
  limit=$2 status="" took=""
  shift 2
  [ "$limit" -le "$(left)" ] || limit=$(left)
  [ "$limit" -ge 1 ] || return 0
  printf '%s\t%s\n' "$name" "$limit" >"$out/$part/running"
  write_report
  limited "$limit" "$out/$part/$name.log" "$@"
}
# judge STEP: notes how what ran has ended. Fails unless it passed.
judge() {
  case "$status" in
    "") note "$1" skipped "" "" "no time was left" ;;
    0) note "$1" passed "$took" "$limit" "" ;;
    124) note "$1" cut "$took" "$limit" "its time was over" ;;
    137) note "$1" failed "$took" "$limit" "it was killed, as for lack of memory" ;;
    *) note "$1" failed "$took" "$limit" "exit code $status" ;;
  esac
  [ "$status" = 0 ]
}
step() { run "$@" && judge "$1"; } # STEP SECONDS COMMAND...

# pack: the archive of the files below $out. One that still grows, as the log of a command that does not end, is in it as
# far as it went: tar's exit code is 1 then.
pack() {
  local status=0
  (cd "$out" && find . -type f ! -path './*.tar.gz*' | tar -czf "$archive.new" -T -) || status=$?
  [ "$status" -le 1 ] && mv "$archive.new" "$archive"
}

# write_report [--print]: report.md, report.json and the archive of all that is there. Sets report_status.
write_report() {
  report_status=0
  PYTHONDONTWRITEBYTECODE=1 python3 "$repository/bench/gpu_report.py" "$@" "$out" || report_status=$?
  pack || {
    say "gpu-suite: $archive was not written"
    report_status=3
  }
}

# finish: the report, whatever ended the run. Exit code 1 where something failed.
finish() {
  local code=$?
  trap '' TERM INT HUP
  [ "$ended" -eq 0 ] || exit "$code"
  ended=1
  [ -z "$child" ] || kill "$child" 2>/dev/null || true
  say ""
  write_report --print
  say "report: $out/report.md, $out/report.json; all of it: $archive"
  case "$report_status:$code" in
    0:*) exit "$code" ;;
    3:0) exit 1 ;;
    3:*) exit "$code" ;;
    *)
      say "gpu-suite: bench/gpu_report.py failed (exit code $report_status); what is in $out is all there is"
      exit 1
      ;;
  esac
}
