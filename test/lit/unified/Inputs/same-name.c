// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Another local function of the same name.

static int local(int x) { return x - 1; }

int (*other_local(void))(int) { return local; }
