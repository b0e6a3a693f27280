#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutations.py [NAME …]: shows that cluster_sim_test finds known mistakes.

Copies the sources into build/mutations, inserts one mistake after the other, builds the simulator and runs its seeds
from 1 on until one fails.  Prints for each mistake the seed and what it broke.  Exit status: 1 if a mistake outside of
NOT_FOUND was not found within SEEDS seeds.  It takes some ten seconds for each mistake on an idle machine.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "mutations"
SEEDS = 250  # As many as the test sim/clusters runs at most: without a mistake none of them fails.

# Name, file, text, and what takes its place.
MUTATIONS = [
    ("name-claim-skips-the-rule", "scheduler/reserve.c",
     "TDM_TRY(tdm__txn_require_node_lost(txn, taker, &holder.node));\n"
     "        return holder.recreate_on_node_loss\n"
     "                   ? tdm__txn_require_node_lost(txn, taker, &holder.owner_node)\n"
     "                   : TDM_OK;", "(void)taker;\n        return TDM_OK;"),
    ("name-is-given-twice", "scheduler/reserve.c",
     "return tdm__fail(TDM_E_EXISTS, \"the name \\\"%s\\\" is taken by actor %s\",",
     "return true ? TDM_OK : tdm__fail(TDM_E_EXISTS, \"the name \\\"%s\\\" is taken by actor %s\","),
    ("takeover-before-the-end-of-the-lease", "tests/support/kept_clock.c", "lease_end + grace < clock->now",
     "lease_end + grace < clock->now + 25000"),
    ("an-outage-counts-against-the-lease", "tests/support/kept_clock.c", "passed > step ? step : passed",
     "passed > step ? passed : passed"),
    ("the-clock-adds-a-step-for-each-node", "tests/support/kept_clock.c",
     "passed < 0 ? 0 : passed > step ? step : passed", "step + 0 * passed"),
    ("a-generation-allows-takeovers-at-once", "tests/support/kept_clock.c",
     "clock->server == 0 || clock->now < clock->held_until", "clock->server == 0"),
    ("names-do-not-wait-in-a-generation", "scheduler/reserve.c", "if (!view_of(request)->names_wait) {", "if (true) {"),
    ("a-name-in-an-unknown-generation", "runtime/store/txn.c", "    if (generation == 0) {\n", "    if (true) {\n"),
    ("fence-counts-from-the-answer", "actors/daemon/lease_machine.c", "machine->is_fenced = machine->is_fenced &&",
     "machine->ends_at = now + machine->lease;\n    machine->is_fenced = machine->is_fenced &&"),
    ("a-lone-node-has-no-end", "actors/daemon/lease_machine.c",
     "return machine->is_alone ? LEASE_NEVER : machine->ends_at;",
     "return machine->ends_at > 0 ? LEASE_NEVER : machine->ends_at;"),
    ("connections-to-a-lost-node-are-kept", "actors/daemon/node_notices.c",
     "if (tdm__rpc_lose_node(node->rpc, &lost->id, lost->epoch) != TDM_OK ||", "if ("),
    ("commits-ignore-versions", "tests/support/memory_store.c",
     "writes[i].version != TDM__VERSION_ANY && writes[i].version != version",
     "writes[i].version != TDM__VERSION_ANY && writes[i].version > version + (1U << 30)"),
    ("a-lost-node-is-not-fenced", "actors/daemon/node_lease.c",
     "tdm__fence_set_end(node->fence, node->lease_status.fence_ms);",
     "tdm__fence_set_end(node->fence, node->lease_status.fence_ms + 3600000);"),
    ("a-refused-node-does-not-join-again", "actors/daemon/lease_machine.c",
     "        machine->is_lost = true;\n        machine->may_have_joined = false;\n        ask(", "        ask("),
    ("a-lost-reply-to-a-join-joins-twice", "actors/daemon/lease_machine.c",
     "machine->may_have_joined || machine->request == LEASE_JOINS", "false"),
]

# Mistakes that these seeds do not find yet. They are no failure of this script.
NOT_FOUND = set()


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)


def copy_sources():
    names = run("git", "-C", ROOT, "ls-files", "-z").stdout.split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, COPY / name
        if source.is_file() and (not target.exists() or target.read_bytes() != source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)  # With a new time, so that it is compiled again.
    done = run("cmake", "--preset", "release", cwd=COPY)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def verdict_of(path, text, instead):
    """Returns whether the mistake was found, and a line about it."""
    file = COPY / path
    good = file.read_text(encoding="utf-8")
    try:
        file.write_text(good.replace(text, instead), encoding="utf-8")
        failure = first_failure()
    finally:
        file.write_text(good, encoding="utf-8")
    return failure is not None, failure or f"not found by {SEEDS} seeds"


def first_failure():
    """Builds the simulator and runs the seeds. Returns what the first one that fails says; None if none does."""
    done = run("cmake", "--build", "--preset", "release", "--target", "cluster_sim_test", cwd=COPY)
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr)
    done = run(COPY / "build/release/tests/cluster_sim_test", SEEDS, timeout=600)
    if done.returncode == 0:
        return None
    said = re.search(r"^seed .*", done.stdout, re.MULTILINE)
    return said.group(0)[:200] if said else f"exit status {done.returncode}"


def main(names):
    unknown = set(names) - {mutation[0] for mutation in MUTATIONS}
    if unknown:
        sys.exit(f"no mistake is named {', '.join(sorted(unknown))}; the mistakes are " +
                 ", ".join(mutation[0] for mutation in MUTATIONS))
    copy_sources()
    changed = [name for name, path, text, _ in MUTATIONS if (COPY / path).read_text(encoding="utf-8").count(text) != 1]
    if changed:
        sys.exit(f"the sources no longer have the text of {', '.join(changed)} once: change this script")
    failure = first_failure()
    if failure:
        sys.exit(f"without a mistake: {failure}")
    missed = 0
    for mutation in MUTATIONS:
        if not names or mutation[0] in names:
            found, line = verdict_of(*mutation[1:])
            missed += not found and mutation[0] not in NOT_FOUND
            print(f"{mutation[0]:42} {line}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
