/* kill_limits.h - what the grace of a lease must cover. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_KILL_LIMITS_H
#define TDM_TESTS_SUPPORT_KILL_LIMITS_H

/* A node is taken over one grace after the end of its lease, by the clock that the store keeps. The
 * processes of the node must have ended before that time. docs/lifetimes.md promises these limits.
 */
enum {
    /* Milliseconds within which what other nodes may take over is killed after the end of the lease
     * by the clock of the node. */
    KILL_MS_MAX = 1500,
    /* Milliseconds by which the clocks of a node and of Redis may differ more at the end of a lease
     * than at its beginning. */
    DRIFT_MS_MAX = 500
};

#endif
