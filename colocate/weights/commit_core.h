/* commit_core.h - the record of a model's weight versions, and every step that changes it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COMMIT_CORE_H
#define TDM_COLOCATE_WEIGHTS_COMMIT_CORE_H

#include "colocate/weights/checksum.h"
#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* docs/protocols/commit.md is the contract.  Everything here is pure: a record and a request
 * in, a changed record or a refusal out. */

enum { TDM__UPDATE_MEMBERS_MAX = 256, TDM__PAST_UPDATES_MAX = 16 };

/* The numbers below are stored; they never change. */
enum tdm__update_outcome {
    TDM__UPDATE_UNDECIDED = 1,
    TDM__UPDATE_COMMITTED = 2,
    TDM__UPDATE_ABORTED = 3
};

enum tdm__update_abort_reason {
    TDM__UPDATE_NOT_ABORTED = 0,    /* undecided or committed */
    TDM__UPDATE_ABORT_PROPOSED = 1, /* somebody proposed ABORT */
    TDM__UPDATE_MEMBER_DIED = 2,    /* COMMIT was proposed, but a member was dead */
    TDM__UPDATE_HASH_MISMATCH = 3   /* COMMIT was proposed, but two members voted for other bytes */
};

enum tdm__member_phase {
    TDM__MEMBER_STAGING = 1,
    TDM__MEMBER_PREPARED = 2,
    TDM__MEMBER_FLIPPED = 3,
    TDM__MEMBER_DEAD = 4
};

/* An actor restarted is another member. */
struct tdm__member {
    struct tdm__id actor;
    uint64_t incarnation; /* from 1 */
};

struct tdm__update_member {
    struct tdm__member member;
    enum tdm__member_phase phase;
    bool voted; /* was prepared once; stays when it dies */
    struct tdm__hash hash;
};

struct tdm__update {
    struct tdm__id id; /* none: there never was an update */
    uint64_t epoch;
    uint64_t version;
    uint64_t base;
    struct tdm__member source;
    enum tdm__update_outcome outcome;
    enum tdm__update_abort_reason reason;
    uint32_t members_count;
    struct tdm__update_member members[TDM__UPDATE_MEMBERS_MAX];
};

struct tdm__past_update {
    struct tdm__id id;
    uint64_t epoch;
    uint64_t version;
    enum tdm__update_outcome outcome;
};

/* All zero: a model that nobody has updated yet, or that was forgotten. */
struct tdm__version_record {
    uint64_t epoch;
    uint64_t version_highest; /* ever given out */
    uint64_t version;         /* committed; 0: none */
    struct tdm__hash hash;    /* of the committed version */
    bool lost;                /* nobody holds its bytes any more: never serve it */
    struct tdm__update update;
    uint32_t past_updates_count; /* the newest last */
    struct tdm__past_update past_updates[TDM__PAST_UPDATES_MAX];
};

enum tdm__version_request_kind {
    TDM__VERSION_READ,
    TDM__VERSION_BEGIN,
    TDM__VERSION_PREPARED,
    TDM__VERSION_DECIDE,
    TDM__VERSION_FLIPPED,
    TDM__VERSION_DEAD,
    TDM__VERSION_LOST,
    TDM__VERSION_JOIN,
    TDM__VERSION_FORGET,
    TDM__VERSION_RESTORE
};

/* One step asked for.  Every one may be repeated after a lost answer: the second time changes
 * nothing and answers as the first. */
struct tdm__version_request {
    enum tdm__version_request_kind kind;
    struct tdm__id update; /* all but READ, LOST and JOIN; begin: made by the source, new;
                              FORGET, RESTORE: the latest */

    /* BEGIN: the record's update then tells epoch and version.  RESTORE: as the source has
     * heard them, of its latest update. */
    uint64_t epoch;         /* BEGIN: the record's must not be lower; 0 if none is known */
    uint64_t base;          /* BEGIN: must be the committed version */
    uint64_t version_floor; /* the version will be higher than this; 0 usually */
    struct tdm__member source;
    const struct tdm__member *members; /* borrowed */
    uint32_t members_count;

    /* PREPARED, FLIPPED, JOIN: who; PREPARED, JOIN: what it holds; RESTORE: the committed
     * version's. */
    struct tdm__member member;
    struct tdm__hash hash;

    /* DECIDE: COMMITTED or ABORTED; the stored outcome is tdm__version_outcome() of the record
     * afterwards, whatever was proposed.  RESTORE: the outcome. */
    enum tdm__update_outcome proposal;

    /* RESTORE */
    uint64_t update_version;
    bool settled; /* all members have flipped */

    /* BEGIN, DECIDE, DEAD, LOST, RESTORE: members known to be dead, which means fenced; those
     * that the update does not list are passed over. */
    const struct tdm__member *dead; /* borrowed */
    uint32_t dead_count;

    uint64_t version; /* LOST, JOIN: must be the committed version; RESTORE: it was */
};

/* Applies `request`.  On failure the record may be half changed: work on a copy that is thrown
 * away.  `changed_out` is false where there is nothing to store. */
tdm_status tdm__version_apply_request(struct tdm__version_record *record,
                                      const struct tdm__version_request *request,
                                      bool *changed_out);

/* The same, but a refusal leaves the record as it was, and `changed` is only ever set: so that
 * several requests, one after the other, end as one write. */
tdm_status tdm__version_apply_batched(struct tdm__version_record *record,
                                      const struct tdm__version_request *request, bool *changed);

/* The outcome of an update, the latest or a remembered one; TDM_E_NOT_FOUND. */
tdm_status tdm__version_outcome(const struct tdm__version_record *record,
                                const struct tdm__id *update,
                                enum tdm__update_outcome *outcome_out);

/* Its index in the latest update, or members_count. */
uint32_t tdm__version_member_index(const struct tdm__update *update,
                                   const struct tdm__member *member);

const char *tdm__update_outcome_name(enum tdm__update_outcome outcome);

#endif
