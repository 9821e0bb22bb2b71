# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes German and Turkish locales in a folder, where the machine has their sources."""

import shutil
import subprocess
import sys

for name in ("de_DE", "tr_TR"):
    if shutil.which("localedef"):
        subprocess.run(["localedef", "-i", name, "-f", "UTF-8", f"{sys.argv[1]}/{name}.UTF-8"], check=False)
