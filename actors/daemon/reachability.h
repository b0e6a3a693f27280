/* reachability.h - whether another node answers this daemon, as a pure function of time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_REACHABILITY_H
#define TDM_ACTORS_DAEMON_REACHABILITY_H

#include <stdbool.h>
#include <stdint.h>

/* How long another node has not answered. All zeros is a node that has just answered. */
struct tdm__reachability {
    /* Milliseconds without an answer in which this daemon ran. */
    int64_t silent_ms;
    /* Time of the last check in milliseconds on CLOCK_MONOTONIC; 0 before the first one. */
    int64_t checked_ms;
    bool is_unreachable; /* True once the silence was too long, until the node answers. */
};

/* Counts the time since the last check as silence, but at most twice the interval of the checks: a
 * daemon that was stopped meanwhile could not have heard an answer. Returns true if the node has
 * just become unreachable, because its silence has reached `timeout_ms`. */
bool tdm__reachability_check(struct tdm__reachability *reachability, int64_t now_ms,
                             int64_t interval_ms, int64_t timeout_ms);
/* Notes that the node has answered. Returns true if it was unreachable. */
bool tdm__reachability_answered(struct tdm__reachability *reachability);

#endif
