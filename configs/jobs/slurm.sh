#!/bin/bash
# A sweep on the nodes of a SLURM job: sbatch --nodes=16 --ntasks-per-node=4 configs/jobs/slurm.sh [options of the sweep]
# One task is one rank; with GPUs add --gpus-per-task=1. The job's exit status is 0 only when the run is complete.
#SBATCH --job-name=ddlbench
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:30:00
set -eu

cd "${DDLBENCH_DIR:-${SLURM_SUBMIT_DIR:-.}}" # a folder that all nodes see: reports go below it
venv=${VENV:-.venv}                          # a Python with ddlbench, which all nodes see too; make bench makes one
sweep=${SWEEP:-configs/sweeps/quick.toml}    # what is measured
out=${OUT:-reports/slurm-$SLURM_JOB_ID}      # where the results go

# Not under srun or mpirun: launch looks at the job and starts the ranks itself. More of its options: LAUNCH="--nodes 2".
# exec: the signals that SLURM sends at the end of its time reach launch, which says how to go on with the run.
# shellcheck disable=SC2086 # LAUNCH holds words
exec "$venv/bin/ddlbench" launch ${LAUNCH:-} -- ddlbench sweep "$sweep" --out "$out" "$@"
