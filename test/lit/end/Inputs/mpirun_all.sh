#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# A script of a user's whose name looks like a launcher's: runs the command, and stays for
# longer than a job that breaks down waits for its launcher to end.
"$@"
echo "status $?"
sleep 15
echo "the script has not been ended"
