/* commit_core.h - the record of a model's weight versions, and the requests that change it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COMMIT_CORE_H
#define TDM_COLOCATE_WEIGHTS_COMMIT_CORE_H

#include "colocate/weights/checksum.h"
#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/collective.h>
#include <tandem/error.h>

/* The protocol is specified in docs/protocols/commit.md. All functions are pure: they take a record
 * and a request and give a changed record or a refusal. */

/* Limits of a version record. */
enum {
    /* The largest number of members of an update: the engine ranks of the largest job, and as many
     * that have died or joined since the update began. */
    TDM__UPDATE_MEMBERS_MAX = 2 * TDM_COLLECTIVE_RANKS_MAX,
    TDM__PAST_UPDATES_MAX = 16, /* The largest number of earlier updates that a record remembers. */
};

/* The outcome of an update. The numbers are stored and never change. */
enum tdm__update_outcome {
    TDM__UPDATE_UNDECIDED = 1, /* The update has begun and has no outcome. */
    TDM__UPDATE_COMMITTED = 2, /* The update's version becomes the served one. */
    TDM__UPDATE_ABORTED = 3    /* The update is void; the version before stays the served one. */
};

/* Why an update was aborted. The numbers are stored and never change. */
enum tdm__update_abort_reason {
    TDM__UPDATE_NOT_ABORTED = 0,    /* The update is undecided or committed. */
    TDM__UPDATE_ABORT_PROPOSED = 1, /* The source or a member proposed to abort. */
    /* The source or a member proposed to commit, but a member was dead. */
    TDM__UPDATE_MEMBER_DIED = 2,
    /* The source or a member proposed to commit, but two members had voted for different hashes. */
    TDM__UPDATE_HASH_MISMATCH = 3
};

/* How far a member of an update has come. The numbers are stored and never change. */
enum tdm__member_phase {
    TDM__MEMBER_STAGING = 1,  /* The member is receiving the update's weights. */
    TDM__MEMBER_PREPARED = 2, /* The member has voted for the update and waits for its outcome. */
    TDM__MEMBER_FLIPPED = 3,  /* The member has switched to the committed version and serves it. */
    /* The member's process has ended or was fenced, so it cannot serve anything. */
    TDM__MEMBER_DEAD = 4
};

/* Whether a process holds the bytes of the committed version. The numbers are stored and never
 * change. */
enum tdm__version_bytes {
    TDM__BYTES_HELD = 0, /* The members that serve the committed version hold its bytes. */
    TDM__BYTES_LOST = 1, /* No process holds the bytes any more; the version is never served. */
    /* An update that writes over the served weights has begun after the version was committed. Its
     * bytes count as lost, until a member shows by JOIN that it holds all of them. */
    TDM__BYTES_OVERWRITTEN = 2
};

/* A process that takes part in updates: one incarnation of an actor. A restarted actor is another
 * member. */
struct tdm__member {
    struct tdm__id actor; /* ID of the actor that is the member. */
    uint64_t incarnation; /* Incarnation of the actor, from 1; it grows with each restart. */
};

/* A member's part in the latest update. */
struct tdm__update_member {
    struct tdm__member member;    /* Actor and incarnation of the process that takes part. */
    enum tdm__member_phase phase; /* How far the member has come in the update. */
    bool voted; /* True once the member has voted in this update; stays true when it dies. */
    /* Hash of the weights for which the member voted; zero before its vote. */
    struct tdm__hash hash;
};

/* The latest update of a model. */
struct tdm__update {
    /* ID that the source chose for the update; all zero if there never was an update. */
    struct tdm__id id;
    /* Sequence number of the update among all updates of its version record, from 1. */
    uint64_t epoch;
    uint64_t version; /* Version number that the weights get if the update is committed. */
    uint64_t base;    /* Version that was committed when the update began; 0 if there was none. */
    struct tdm__member source;        /* Process that sends the weights of the update. */
    enum tdm__update_outcome outcome; /* Outcome of the update: undecided, committed or aborted. */
    /* Why the update was aborted; TDM__UPDATE_NOT_ABORTED if it was not. */
    enum tdm__update_abort_reason reason;
    uint32_t members_count; /* Number of members of the update; at least 1 if there is an update. */
    /* Receivers of the weights, in the order of the BEGIN request; later joiners follow. */
    struct tdm__update_member members[TDM__UPDATE_MEMBERS_MAX];
};

/* What a record remembers of an update before the latest. */
struct tdm__past_update {
    struct tdm__id id; /* ID that the source had chosen for the update. */
    /* Sequence number of the update among all updates of its version record, from 1. */
    uint64_t epoch;
    uint64_t version; /* Version number that the update's weights got, also if it was aborted. */
    /* Whether the update was committed or aborted; never undecided. */
    enum tdm__update_outcome outcome;
};

/* The record of a model's versions, which the store keeps under one key. All zero stands for a
 * model without updates, or one that was forgotten. */
struct tdm__version_record {
    uint64_t epoch;           /* Epoch of the model's latest update; 0 if there never was one. */
    uint64_t version_highest; /* The highest version number that any update of the model has got. */
    uint64_t version;      /* Version number of the committed weights; 0 if none were committed. */
    struct tdm__hash hash; /* Hash of the committed weights. */
    /* Whether a process holds the bytes of the committed version. A member must not be given them
     * unless they are held. */
    enum tdm__version_bytes bytes;
    struct tdm__update update;   /* The latest update of the model, decided or not. */
    uint32_t past_updates_count; /* Number of entries in `past_updates`. */
    /* Updates before the latest, the newest last. */
    struct tdm__past_update past_updates[TDM__PAST_UPDATES_MAX];
};

/* The kinds of requests. The fields that each uses are in struct tdm__version_request. */
enum tdm__version_request_kind {
    TDM__VERSION_READ,     /* Reads the version record without changing it. */
    TDM__VERSION_BEGIN,    /* The source begins a new update of the model's weights. */
    TDM__VERSION_PREPARED, /* A member votes: it has received all weights of the update. */
    /* The source or a member proposes an outcome; the first proposal that is stored decides. */
    TDM__VERSION_DECIDE,
    TDM__VERSION_FLIPPED, /* A member reports that it serves the committed version. */
    TDM__VERSION_DEAD,    /* Reports that members of the update are dead. */
    TDM__VERSION_LOST,    /* Reports that no living process holds the committed version. */
    /* A new member, or one whose weights an aborted update has overwritten, has copied the
     * committed version from a peer and serves it. */
    TDM__VERSION_JOIN,
    /* Deletes the version record because no process can ask for it any more. */
    TDM__VERSION_FORGET,
    TDM__VERSION_RESTORE /* The source writes a version record that the store has lost. */
};

/* One request. Every request may be repeated after a lost reply: the second time it changes nothing
 * and gives the same result. */
struct tdm__version_request {
    /* Kind of the request; it decides which other fields are used. */
    enum tdm__version_request_kind kind;
    /* DECIDE: the proposed outcome, COMMITTED or ABORTED. The stored outcome may differ; it is
     * tdm__version_outcome() of the record afterwards. RESTORE: the outcome. */
    enum tdm__update_outcome proposal;
    uint32_t members_count; /* Number of entries in `members`. */
    uint32_t dead_count;    /* Number of entries in the list `dead`. */
    /* ID of the update that the request is about; unused by READ, LOST and JOIN. BEGIN: a new ID
     * that the source made. FORGET and RESTORE: ID of the latest update. */
    struct tdm__id update;

    /* BEGIN: the lowest epoch that the record may have, else it has lost writes; 0 if the source
     * knows no epoch. RESTORE: epoch of the source's latest update. */
    uint64_t epoch;
    /* BEGIN: version that the source believes to be committed; another one refuses the request.
     * RESTORE: version that was committed before the update. */
    uint64_t base;
    uint64_t version_floor; /* BEGIN: the new version will be higher than this number; usually 0. */
    struct tdm__member source;         /* BEGIN and RESTORE: process that sends the weights. */
    const struct tdm__member *members; /* BEGIN and RESTORE: receivers of the update; borrowed. */

    struct tdm__member member; /* PREPARED, FLIPPED and JOIN: the member that makes the request. */
    /* PREPARED and JOIN: hash of the bytes that the member holds. RESTORE: hash of the committed
     * version. */
    struct tdm__hash hash;

    uint64_t update_version; /* RESTORE: version number that the source's latest update got. */
    /* LOST and JOIN: version that the caller believes to be committed; another one refuses the
     * request. RESTORE: version that was committed. */
    uint64_t version;
    /* BEGIN, DECIDE, DEAD, LOST and RESTORE: processes known to be dead. Those that are not members
     * of the update are ignored. Borrowed. */
    const struct tdm__member *dead;
    /* BEGIN and RESTORE: true if the update writes over the weights that its members serve, so that
     * they hold no version from their first bucket to the commit. */
    bool overwrites;
    bool settled; /* RESTORE: true if all living members have flipped to the committed version. */
};

/* Applies a request to a version record. On failure the record may be half changed, so the caller
 * passes a copy and discards it. Sets `changed_out` to false if the record needs no write. */
tdm_status tdm__version_apply_request(struct tdm__version_record *record,
                                      const struct tdm__version_request *request,
                                      bool *changed_out);

/* Applies a request like tdm__version_apply_request(), but a refusal leaves the record unchanged.
 * `changed` is only ever set to true, so that several requests can become one write. */
tdm_status tdm__version_apply_batched(struct tdm__version_record *record,
                                      const struct tdm__version_request *request, bool *changed);

/* Finds the outcome of an update, the latest or a remembered one. Returns TDM_E_NOT_FOUND for any
 * other update. */
tdm_status tdm__version_outcome(const struct tdm__version_record *record,
                                const struct tdm__id *update,
                                enum tdm__update_outcome *outcome_out);

/* Returns the index of a member in the update's list, or members_count if the list does not contain
 * it. */
uint32_t tdm__version_member_index(const struct tdm__update *update,
                                   const struct tdm__member *member);

/* Size in bytes of a member as text in error messages, including the terminating NUL. */
enum { TDM__MEMBER_TEXT_BYTES = TDM__ID_TEXT_BYTES + 32 };

/* Writes a member's actor ID and incarnation to `text`, for error messages, and returns `text`. */
const char *tdm__member_text(const struct tdm__member *member, char text[TDM__MEMBER_TEXT_BYTES]);

/* Returns the name of an outcome, for example "committed", for messages. */
const char *tdm__update_outcome_name(enum tdm__update_outcome outcome);

#endif
