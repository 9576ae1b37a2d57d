#!/bin/bash
# A sweep on Power8 or Power9 servers under LSF, with Spectrum MPI and jsrun: bsub -nnodes 16 < configs/jobs/lsf.sh
# (LSF reads the lines with #BSUB only from its standard input.) No LSF has run this; see docs/launching.md.
#BSUB -J ddlbench
#BSUB -nnodes 4
#BSUB -W 30
#BSUB -o ddlbench-%J.out
set -eu

cd "${DDLBENCH_DIR:-${LS_SUBCWD:-.}}"     # a folder that all nodes see: reports go below it
venv=${VENV:-.venv}                       # a Python with ddlbench, compiled on a node of this kind (module load …)
sweep=${SWEEP:-configs/sweeps/quick.toml} # what is measured
out=${OUT:-reports/lsf-$LSB_JOBID}        # where the results go
per_node=${PER_NODE:-4}                   # ranks on a node, one for each GPU; LSF gives whole nodes with all their cores

# This runs on the launch node: launch leaves it out and starts the ranks by jsrun, or by mpirun where there is none.
# shellcheck disable=SC2086 # LAUNCH holds words
exec "$venv/bin/ddlbench" launch --gpus-per-node "$per_node" ${LAUNCH:-} -- ddlbench sweep "$sweep" --out "$out" "$@"
