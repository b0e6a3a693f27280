# SPDX-License-Identifier: Apache-2.0
"""Reads what the processes of a soak hold, from outside of the processes."""
import os
import pathlib
import socket
import time

PROC = pathlib.Path("/proc")


def tree(root):
    """Returns the process IDs of all descendants of `root` that are not zombies."""
    children = {}
    for entry in PROC.glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
        except OSError:
            continue  # The process has ended meanwhile.
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def zombies(root):
    """Returns the number of zombies whose parent is `root` or a descendant of it."""
    count = 0
    below = {root, *tree(root)}
    for entry in PROC.glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
        except OSError:
            continue
        count += fields[0] == "Z" and int(fields[1]) in below
    return count


def role(pid, drivers):
    """Returns the role of a process: a driver, one of Tandem's processes, or "other".

    Returns None if the process has ended.  `drivers` lists the process IDs of the drivers.
    """
    if pid in drivers:
        return f"driver {drivers.index(pid)}"
    try:
        name = (PROC / str(pid) / "comm").read_text().strip()
        words = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    if name == "redis-server":
        return "redis"
    if name == "tandem-store":
        return "store"
    if name == "tandem-super":
        return "supervisor"
    if name == "tandemd":
        return "daemon"
    if name == "tandem-reaper":
        return "reaper"
    if parent_name(pid) != "tandem-reaper" and b"TANDEM_WORKER=fork_server" in words:
        return "template"
    return "worker" if parent_name(pid) == "tandem-reaper" else "other"


def parent_name(pid):
    """Returns the name of a process's parent; None if the process has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
        return (PROC / fields[1] / "comm").read_text().strip()
    except OSError:
        return None


def numbers(pid):
    """Returns PSS, RSS and shared memory in KiB, descriptors and threads; None if the process has ended."""
    try:
        memory = (PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii")
        status = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        fds = len(os.listdir(PROC / str(pid) / "fd"))
    except OSError:
        return None
    found = {"fds": fds}
    for line in memory.splitlines():
        if line.startswith("Pss:"):
            found["pss_kib"] = int(line.split()[1])
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            found["rss_kib"] = int(line.split()[1])
        elif line.startswith("RssShmem:"):
            found["shmem_kib"] = int(line.split()[1])
        elif line.startswith("Threads:"):
            found["threads"] = int(line.split()[1])
    return found if "pss_kib" in found and "rss_kib" in found else None


RECORDS = b"tdm:{tandem}:index"  # The store's list of all its records.


def redis(path):
    """Returns the numbers of records and keys, and the memory that Redis uses in KiB.

    Besides the records, Redis keeps the outcomes of the commits of the last minute, so keys and memory
    follow the load.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)
        line.connect(str(path))
        line.sendall(b"ZCARD " + RECORDS + b"\r\nDBSIZE\r\nINFO memory\r\n")
        text = b""
        while b"mem_clients_normal" not in text and b"total_system_memory_human" not in text:
            text += line.recv(1 << 16)
    records, keys = (int(row[1:]) for row in text.split(b"\r\n", 2)[:2])
    for row in text.split(b"\r\n"):
        if row.startswith(b"used_memory:"):
            return {"records": records, "keys": keys, "used_kib": int(row.split(b":")[1]) // 1024}
    return {"records": records, "keys": keys}


def files(directory):
    """Returns the numbers of files and log files below the directory, and their size in KiB.

    The log files have what actors printed, which their node limits.
    """
    found = {"files": 0, "logs": 0, "kib": 0}
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                found["kib"] += os.lstat(os.path.join(folder, name)).st_blocks // 2
                found["logs" if os.path.basename(folder) == "logs" else "files"] += 1
            except OSError:
                pass  # The file has been removed meanwhile.
    return found


def shared_memory():
    """Returns the files in /dev/shm and the shared memory of the whole machine in KiB.

    Other programs may use shared memory, too, so these numbers are reported and not judged.
    """
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("Shmem:"):
            return {"files": len(names), "shmem_kib": int(line.split()[1])}
    return {"files": len(names)}


def sample(root, drivers, redis_paths, directory, begun):
    """Returns one sample: the seconds since `begun`, each process with its role, Redis, files and zombies."""
    processes = []
    for pid in tree(root):
        name = role(pid, drivers)
        found = numbers(pid) if name is not None else None
        if found is not None:
            processes.append({"pid": pid, "role": name, **found})
    return {"seconds": round(time.monotonic() - begun, 2), "processes": processes,
            "zombies": zombies(root), "redis": [redis(path) for path in redis_paths],
            "tmp": files(directory), "shm": shared_memory()}
