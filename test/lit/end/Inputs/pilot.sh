#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The rank of an outer job: runs a command that knows nothing of that job, and stays for
# longer than an inner job that breaks down waits for its launcher to end.
for name in $(env | sed -n 's/^\([A-Z_0-9a-z]*\)=.*/\1/p'); do
  case $name in
  OMPI_ALLOW_* | OMPI_MCA_reachable) ;;
  OMPI_* | PMI_* | PMIX_* | ORTE_* | HYDI_* | MPI_*) unset "$name" ;;
  esac
done
# Which mpirun keeps for itself.
export PRTE_ALLOW_RUN_AS_ROOT="$OMPI_ALLOW_RUN_AS_ROOT" PRTE_ALLOW_RUN_AS_ROOT_CONFIRM="$OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"
"$@"
echo "status $?"
sleep 15
echo "the pilot has not been ended"
