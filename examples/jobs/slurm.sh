#!/bin/bash
#SBATCH --job-name=keel
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
# For GPUs: #SBATCH --gpus-per-task=1
#
# sbatch examples/jobs/slurm.sh CONFIG.yaml [KEY=VALUE ...]
#
# Five minutes before the time is over the ranks get SIGUSR1: they finish the step, save, and end with 143 (130 where
# the step's processes get the signal as Ctrl-C). Then the job puts itself into the queue again and goes on from there.
set -uo pipefail
[ $# -ge 1 ] || { echo "usage: sbatch $0 CONFIG.yaml [KEY=VALUE ...]" >&2; exit 2; }

status=0
keel launch -N "$SLURM_NTASKS" "$@" resume=auto || status=$?
case $status in
  130 | 143) scontrol requeue "$SLURM_JOB_ID" ;;
  *) exit "$status" ;;
esac
