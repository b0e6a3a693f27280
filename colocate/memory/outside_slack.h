/* outside_slack.h - how far a report of a device may differ from the outside memory declared. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_OUTSIDE_SLACK_H
#define TDM_COLOCATE_MEMORY_OUTSIDE_SLACK_H

#include <stdint.h>

/* Returns the number of bytes by which what a device reports may differ from `declared_bytes`
 * without being reported as a difference: 16 MiB, or a sixteenth if that is more. Allocators round
 * up, and libraries load modules when they are first used. */
static inline uint64_t tdm__outside_slack_bytes(uint64_t declared_bytes)
{
    uint64_t least = (uint64_t)16 << 20;

    return declared_bytes / 16 > least ? declared_bytes / 16 : least;
}

#endif
