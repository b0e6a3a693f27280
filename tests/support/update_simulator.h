/* update_simulator.h - simulated processes that update weights: a state and the possible next
 * events. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_UPDATE_SIMULATOR_H
#define TDM_TESTS_SUPPORT_UPDATE_SIMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One driver, one trainer and two or three engines around one record, with real bytes and
 * checksums. Decisions are made by the product's pure functions: commit_core.c for the record,
 * replay_guard.c for a member, phase.c for the driver. A message may be late or come twice. A reply
 * of the store may be lost. A write may store a wrong byte. Each process may end between any two of
 * the named steps of docs/protocols/commit.md and be replaced by a new incarnation. */
enum {
    UPDATE_MEMBERS_MAX = 3,
    UPDATE_TENSORS = 3,      /* Tensors of the model; each bucket has one. */
    UPDATE_HALVES = 2,       /* Halves of the trainer's bucket memory; buckets use them in turn. */
    UPDATE_TENSOR_BYTES = 2, /* Bytes of a tensor. */
    UPDATE_IDS_MAX = 15,     /* Highest update ID. */
    /* Capacity of an update's member list, with members that joined or died. */
    UPDATE_RECORDED_MAX = 6,
    /* Capacity of the record's list of past updates; no event asks about an older one. */
    UPDATE_PAST_MAX = 4
};

/* Mutations: bugs of other systems, and of Tandem, that the exploration must find. */
enum update_bug {
    UPDATE_NO_BUG,
    /* From slime: buckets are written into the served weights, which have the new version from the
     * first bucket on. */
    UPDATE_BUG_NUMBER_AFTER_FIRST_BUCKET,
    /* From miles#2244 and #2835: the counter of versions is lost when the source dies. */
    UPDATE_BUG_NUMBER_IN_MEMORY,
    /* From vllm#57853: an update is sent to, and accepted by, an engine whose memory is paused. */
    UPDATE_BUG_UPDATE_ASLEEP,
    /* From vllm#44395 and PR45700: requests continue when the weights are resumed but the KV cache
     * is not. */
    UPDATE_BUG_FORWARD_WITHOUT_KV,
    /* From vllm PR45398: memory counts as resumed when the resume is requested, not when it is
     * done. */
    UPDATE_BUG_AWAKE_WHEN_ASKED,
    /* From Tandem: a drop does not name its update. */
    UPDATE_BUG_DROP_OF_NOTHING,
    /* A bucket is added to the resume log before its bytes are complete. */
    UPDATE_BUG_JOURNAL_BEFORE_BYTES,
    /* A trainer continues after the reply of its own engine without agreement of the others. It
     * writes a bucket into memory that another engine may still read. */
    UPDATE_BUG_WAITS_FOR_ONE_ENGINE,
    /* A lost record is restored as it was before the latest update. */
    UPDATE_BUG_RESTORES_LOWER,
    /* RESTORE overwrites any record. */
    UPDATE_BUG_RESTORES_OVER,
    /* BEGIN does not name the epoch that its source knows. */
    UPDATE_BUG_BEGINS_ANEW,
    /* A member that has voted treats "not found" as an abort. */
    UPDATE_BUG_LOST_IS_ABORTED,
    /* A source restores an update as aborted that members may know to be committed. */
    UPDATE_BUG_RESTORES_IN_DOUBT,
    /* A source that starts with an empty record keeps the members that it finds. */
    UPDATE_BUG_KEEPS_OLD_MEMBERS,
    /* From slime: after an abort, an engine whose weights were overwritten serves them as the base
     * version. */
    UPDATE_BUG_BASE_AFTER_ABORT,
    /* A member that copies a peer's weights over what it has staged keeps its resume log. */
    UPDATE_BUG_PULL_KEEPS_LOG,
    /* After an overwriting update is aborted, the job continues with the previous version. */
    UPDATE_BUG_GOES_ON_WITHOUT_BASE
};

/* How weights are transferred; see update.mode in docs/job-file.md. */
enum update_way {
    /* Mode names: whole tensors. A bucket may come twice, and there is no resume log. */
    UPDATE_BY_NAME,
    UPDATE_BY_COPY,  /* Mode copy: one bucket is written while the previous one is read. */
    UPDATE_IN_PLACE, /* Mode donate: trainers write into the engines' shadows. */
    /* Mode bucket: as mode copy, but engines copy each bucket over the weights that they serve. */
    UPDATE_BY_BUCKET,
    UPDATE_WAYS /* Number of modes. */
};

/* The bounds of an exploration: how often each kind of event may happen, and the mutation. */
struct update_limits {
    uint8_t members; /* Number of engines. */
    /* Updates that the driver starts by itself. It starts more if an engine needs one to serve. */
    uint8_t updates;
    uint8_t crashes;
    uint8_t losses;  /* Lost replies of the store. */
    uint8_t repeats; /* Messages that are delivered twice, the second time at any later time. */
    uint8_t tears;   /* Writes that store a wrong byte. */
    uint8_t hurries; /* Deadlines that pass although no process has died. */
    uint8_t wipes;   /* Losses of all data of the store. */
    enum update_way way;
    enum update_bug bug;
};

/* All structs below consist of bytes, so that two states are equal if their bytes are. */

/* The record of the model in the store. Names are as in struct tdm__version_record, and ids are
 * small numbers. */
struct update_record {
    uint8_t epoch, highest, version, hash, bytes;
    uint8_t id, id_version, base, source, outcome, reason, count;
    struct {
        uint8_t index, incarnation, phase, voted, hash;
    } members[UPDATE_RECORDED_MAX];
    uint8_t past_updates_count;
    struct {
        uint8_t id, epoch, version, outcome;
    } past_updates[UPDATE_PAST_MAX];
};

enum update_call_kind {
    UPDATE_NO_CALL,
    UPDATE_PAUSE,
    UPDATE_RESUME_WEIGHTS,
    UPDATE_TAKE_SHADOW,
    UPDATE_PREPARE,
    UPDATE_FLIP,
    UPDATE_DROP,
    UPDATE_RESUME_KV,
    UPDATE_JOIN,
    UPDATE_BUCKET
};

/* A message to an engine. `seen` has the tensor's bytes as the sender knows them, in place of their
 * checksum. In a join it has what the peer exported, and `sum` its checksum. */
struct update_message {
    uint8_t kind, from, update, epoch, version, hash, tensor;
    uint8_t peer, peer_incarnation, sum;
    uint8_t unheard; /* 1: no process waits for the reply. */
    uint8_t seen[UPDATE_TENSOR_BYTES];
};

/* What a member will do next by itself. */
enum update_member_todo { MEMBER_RESTS, MEMBER_VOTES, MEMBER_ASKS, MEMBER_REPORTS, MEMBER_JOINS };

/* A member: one engine with its memory. */
struct update_member {
    uint8_t alive, incarnation;
    uint8_t guard_phase, guard_update, guard_epoch;
    uint8_t version; /* Version of `image`; 0 if the image is not complete or there is none. */
    uint8_t version_highest;
    uint8_t weights, kv, shadow_here;
    uint8_t shadow_key; /* Number that distinguishes one shadow memory from another. */
    uint8_t image[UPDATE_TENSORS][UPDATE_TENSOR_BYTES];  /* The served weights. */
    uint8_t shadow[UPDATE_TENSORS][UPDATE_TENSOR_BYTES]; /* The staged weights. */
    /* The bytes of each tensor that were verified. */
    uint8_t seen[UPDATE_TENSORS][UPDATE_TENSOR_BYTES];
    uint8_t staged; /* One bit per staged tensor. */
    /* The resume log: number of its buckets, and its flags. Its checksums are those of `seen`. */
    uint8_t resume_log_next, resume_log_open, resume_log_unsettled;
    uint8_t hash; /* Hash that the member votes for or joins with. */
    uint8_t todo, todo_from, todo_version;
    struct update_message call;   /* The call of the driver that waits for this member. */
    struct update_message bucket; /* The bucket of the trainer that waits for this member. */
};

/* What the driver will do next. */
enum update_driver_todo {
    DRIVER_RESTS,
    DRIVER_CALLS,
    DRIVER_BEGINS,
    DRIVER_MOVES,
    DRIVER_DECIDES,
    DRIVER_RESTORES
};

/* A RESTORE request. It also has what a driver knows about its latest update. */
struct update_restore {
    uint8_t update, epoch, update_version, base, outcome, settled, version, hash;
    uint8_t source;
    uint8_t members[UPDATE_MEMBERS_MAX]; /* Incarnation of each member; 0: not a member. */
    uint8_t dead;                        /* One bit per member that has died. */
};

/* The driver, which is the controller of the job and the source of updates. */
struct update_driver {
    uint8_t alive, incarnation;
    uint8_t phase, open, resident, engines_alive, retries, committed, serving;
    uint8_t todo, call, takes_over;
    /* One bit per engine. A fresh engine lives and has received nothing yet. */
    uint8_t waiting, workers, fresh;
    uint8_t incarnations[UPDATE_MEMBERS_MAX];
    uint8_t trainer;                  /* Incarnation of the trainer. */
    uint8_t keys[UPDATE_MEMBERS_MAX]; /* Key of each engine's shadow memory. */
    uint8_t
        /* Length of each engine's resume log as its reply said, and next a number for its
         * checksums. */
        resume_logs[UPDATE_MEMBERS_MAX];
    uint8_t resume_log_sums[UPDATE_MEMBERS_MAX];
    uint8_t update, epoch, version, hash, failed, asked;
    /* The three after a lost record: an update that not all members have flipped, one whose COMMIT
     * was requested, and what the driver does after the RESTORE. */
    uint8_t unflipped, asked_commit, after;
    uint8_t floor;
    /* What the driver knows about its latest update, as source_state.h keeps it. */
    struct update_restore heard;
};

/* What the trainer will do next. */
enum update_trainer_todo {
    TRAINER_RESTS,
    TRAINER_WRITES,
    TRAINER_WRITES_ON, /* One half of the tensor is written. */
    TRAINER_TELLS,
    TRAINER_WAITS
};

/* The driver's request to the trainer to transfer an update. */
struct update_order {
    uint8_t here, from, update, epoch, version, workers;
    uint8_t incarnations[UPDATE_MEMBERS_MAX];
    uint8_t keys[UPDATE_MEMBERS_MAX];
    /* In trainer.work: number of buckets that each engine need not receive. */
    uint8_t resume_logs[UPDATE_MEMBERS_MAX];
    uint8_t resume_log_sums[UPDATE_MEMBERS_MAX];
};

/* The trainer, one process in this simulation. */
struct update_trainer {
    uint8_t alive, incarnation;
    uint8_t weights;           /* Number of its weights, which changes when it learns or starts. */
    uint8_t known;             /* Number of buckets of these weights whose checksums it knows. */
    struct update_order order; /* The request in its mailbox. */
    struct update_order work;  /* The request that it is working on. */
    uint8_t todo, tensor, waiting, failed;
    /* Contents of the two halves of the bucket memory. */
    uint8_t bucket[UPDATE_HALVES][UPDATE_TENSOR_BYTES];
};

/* The complete state of the simulation. */
struct update_simulator {
    struct update_record record;
    struct update_member members[UPDATE_MEMBERS_MAX];
    struct update_driver driver;
    struct update_trainer trainer;
    struct update_message late; /* A message that will be delivered a second time. */
    uint8_t late_to, late_incarnation;
    /* A RESTORE that will be delivered a second time; no RESTORE if .update is 0. */
    struct update_restore late_restore;
    uint8_t updates_left, crashes_left, losses_left, repeats_left, tears_left, hurries_left;
    uint8_t wipes_left;
    uint8_t ids;                       /* Number of update IDs given out so far. */
    uint8_t version_highest;           /* Highest version given out so far. */
    uint8_t version_told;              /* Highest version that any process knows to be committed. */
    uint8_t id_of[UPDATE_IDS_MAX + 1]; /* Update ID that each version was given to. */
    uint8_t weights_highest;           /* Highest number of weights that the trainer has learned. */
    /* Number of the weights that were sent as each version. */
    uint8_t weights_of[UPDATE_IDS_MAX + 1];
    uint8_t hash_of[UPDATE_IDS_MAX + 1]; /* Hash of each committed version. */
};

/* The kinds of events. */
enum update_event_kind {
    UPDATE_DRIVER_WANTS_UPDATE,
    UPDATE_DRIVER_GOES_ON,
    /* The driver sends a request to the store, and the reply is lost. */
    UPDATE_DRIVER_HEARS_NOTHING,
    UPDATE_DRIVER_LEARNS_OF_DEATH,
    UPDATE_DRIVER_LEARNS_OF_TRAINERS_DEATH,
    UPDATE_TRAINER_GOES_ON,
    UPDATE_TRAINER_WRITES_WRONG,
    UPDATE_TRAINER_LEARNS_OF_DEATH,
    UPDATE_MEMBER_TAKES_CALL,
    UPDATE_MEMBER_TAKES_BUCKET,
    UPDATE_MEMBER_GOES_ON,
    UPDATE_MEMBER_HEARS_NOTHING,
    UPDATE_MEMBER_IS_LATE, /* The deadline of a member passes. */
    UPDATE_CALL_IS_REPEATED,
    UPDATE_BUCKET_IS_REPEATED,
    UPDATE_LATE_MESSAGE_COMES,
    UPDATE_DRIVER_ENDS,
    UPDATE_DRIVER_STARTS,
    UPDATE_TRAINER_ENDS,
    UPDATE_TRAINER_STARTS,
    UPDATE_MEMBER_ENDS,
    UPDATE_MEMBER_STARTS,
    UPDATE_STORE_LOSES_ALL,
    UPDATE_RESTORE_IS_REPEATED,
    UPDATE_LATE_RESTORE_COMES,
    UPDATE_EVENTS
};

/* One event. */
struct update_event {
    uint8_t kind;   /* enum update_event_kind */
    uint8_t member; /* Index of the engine; unused by events without an engine. */
};

enum { UPDATE_EVENTS_MAX = UPDATE_EVENTS * UPDATE_MEMBERS_MAX };

void update_simulator_init(struct update_simulator *world, const struct update_limits *limits);
/* Lists the events that may happen next and returns their number. */
size_t update_simulator_events(const struct update_limits *limits,
                               const struct update_simulator *world,
                               struct update_event events[UPDATE_EVENTS_MAX]);
/* Executes an event. Returns NULL, or the text of an invariant that is now violated. */
const char *update_simulator_happen(const struct update_limits *limits,
                                    struct update_simulator *world, struct update_event event);
/* Returns true if the event is no fault and ends no process. */
bool update_event_is_good(struct update_event event);
/* Returns true if all living engines serve the committed version and the driver sends requests to
 * them. */
bool update_simulator_serves(const struct update_simulator *world);
/* Returns true if the engine lives and serves a version. */
bool update_engine_serves(const struct update_member *member);
/* Prints an event and its effect on the state. */
void update_event_print(const struct update_simulator *before, struct update_event event,
                        const struct update_simulator *after);

#endif
