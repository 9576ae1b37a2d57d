#!/bin/bash
# A sweep on the nodes of a PBS job: qsub -l select=16:ncpus=4:mpiprocs=4 configs/jobs/pbs.sh
# mpiprocs ranks run on each node. No PBS has run this; see docs/launching.md.
#PBS -N ddlbench
#PBS -l select=4:ncpus=2:mpiprocs=2
#PBS -l place=scatter
#PBS -l walltime=00:30:00
#PBS -j oe
set -eu

cd "${DDLBENCH_DIR:-${PBS_O_WORKDIR:-.}}" # a folder that all nodes see: reports go below it
venv=${VENV:-.venv}                       # a Python with ddlbench, which all nodes see too; make bench makes one
sweep=${SWEEP:-configs/sweeps/quick.toml} # what is measured
out=${OUT:-reports/pbs-${PBS_JOBID%%.*}}  # where the results go

# Not under mpiexec: launch reads PBS_NODEFILE and starts the ranks itself. More of its options: LAUNCH="--nodes 2".
# shellcheck disable=SC2086 # LAUNCH holds words
exec "$venv/bin/ddlbench" launch ${LAUNCH:-} -- ddlbench sweep "$sweep" --out "$out" "$@"
