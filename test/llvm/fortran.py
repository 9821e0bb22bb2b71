# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LLVM's Fortran tests on devices that are CPUs."""

import copy

import lit.formats

# They say that they are for AMD's GPUs, or not for x86, for flang's regions lack a runtime
# library there. Here they have one (fortran/runtime.c).
WANTED = {"gpu", "amdgpu", "amdgcn-amd-amdhsa"}


class Format(lit.formats.ShTest):
    """A suite's usual format, with which its Fortran tests find the device that they want.
    (In a module, for lit hands it to other processes.)"""

    def execute(self, test, lit_config):
        if "fortran" in test.path_in_suite:
            test.config = copy.copy(test.config)
            features = test.config.available_features | WANTED
            test.config.available_features = {f for f in features if not f.startswith("x86_64-")}
            cpu = "-fopenmp-targets=" + test.config.libomptarget_current_target
            amd = ("-fopenmp-targets=amdgcn-amd-amdhsa", cpu)
            test.config.substitutions = [amd, *test.config.substitutions]
        return super().execute(test, lit_config)
