#!/bin/bash
#PBS -N keel
#PBS -l select=2:ncpus=32:mpiprocs=4
#PBS -l walltime=04:00:00
#PBS -r y
#
# qsub -v CONFIG=/path/config.yaml examples/jobs/pbs.sh
#
# For PBS with Open MPI or with PALS (Cray): the ranks find each other by what the launcher gives them. PBS sends no
# warning, so session_limit lets keel save and end by itself ten minutes earlier; steps remain if metrics end below `steps`.
set -euo pipefail
: "${CONFIG:?qsub -v CONFIG=/path/config.yaml $0}"
cd "$PBS_O_WORKDIR"

ranks_per_node=4
nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
seconds=$((4 * 3600 - 600))
if command -v aprun >/dev/null || [ -n "${PALS_VERSION:-}" ]; then
  exec mpiexec -n $((nodes * ranks_per_node)) --ppn "$ranks_per_node" keel train "$CONFIG" resume=auto "session_limit=$seconds"
fi
hosts=$(sort -u "$PBS_NODEFILE" | sed "s/\$/:$ranks_per_node/" | paste -s -d , -)
exec keel launch -N $((nodes * ranks_per_node)) --hosts "$hosts" "$CONFIG" resume=auto "session_limit=$seconds"
