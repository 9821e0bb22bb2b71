// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A plain user library, without target regions, that regions call.
int twice(int x) { return 2 * x; }
