#!/bin/bash
#flux: --job-name=keel
#flux: --nodes=2
#flux: --time-limit=4h
#
# flux batch examples/jobs/flux.sh CONFIG.yaml [KEY=VALUE ...]
#
# Five minutes before the time is over the ranks get SIGUSR1: they finish the step, save, and end with 143. A job that is
# submitted again goes on from there.
set -uo pipefail
[ $# -ge 1 ] || { echo "usage: flux batch $0 CONFIG.yaml [KEY=VALUE ...]" >&2; exit 2; }

# The signal is asked for here and not above: there it would go to this script as well, and end it before the ranks have
# saved. Ranks that Flux starts are found through PMIx, as MPI was built with it.
exec flux run --signal=SIGUSR1@5m --nodes=2 --tasks-per-node=4 --cores-per-task=8 -o pmi=pmix keel train "$@" resume=auto
