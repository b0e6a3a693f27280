# SPDX-License-Identifier: Apache-2.0
"""The one function of SGLang's utilities that slime's engine actor calls."""
import psutil


def kill_process_tree(pid):
    """Kill a process and everything that it has started."""
    first = psutil.Process(pid)
    for process in [*first.children(recursive=True), first]:
        process.kill()
