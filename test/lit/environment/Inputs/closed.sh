# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Runs a command with its standard streams closed.
exec "$@" <&- >&- 2>&-
