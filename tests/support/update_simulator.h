/* update_simulator.h - processes that update weights: a state, and the events that may come next.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_UPDATE_SIMULATOR_H
#define TDM_TESTS_SUPPORT_UPDATE_SIMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One driver, one trainer and two or three engines around one record, with real bytes and real
 * checksums.  What they decide is decided by the product: the record by commit_core.c, what a
 * member takes by replay_guard.c, whose turn it is by phase.c.  What travels may be late and may
 * come twice, an answer of the store may be lost, a write may go wrong, and each process may end
 * between any two of the named steps of docs/protocols/commit.md and come back as another. */
enum {
    UPDATE_MEMBERS_MAX = 3,
    UPDATE_TENSORS = 3, /* one a bucket */
    UPDATE_HALVES = 2,  /* of the trainer's memory for buckets: one each, by turns */
    UPDATE_TENSOR_BYTES = 2,
    UPDATE_IDS_MAX = 15,
    UPDATE_RECORDED_MAX = 6, /* members of one update, with those who joined and died */
    UPDATE_PAST_MAX = 4      /* a question about an older one is never asked here */
};

/* Mistakes of other systems, made here on purpose. */
enum update_bug {
    UPDATE_NO_BUG,
    /* slime: buckets go into the weights that are served, under the new number from the first
     * bucket on. */
    UPDATE_BUG_NUMBER_AFTER_FIRST_BUCKET,
    /* miles#2244, #2835: the counter of versions dies with the source. */
    UPDATE_BUG_NUMBER_IN_MEMORY,
    /* vllm#57853: an update is sent to, and taken by, an engine whose memory is away. */
    UPDATE_BUG_UPDATE_ASLEEP,
    /* vllm#44395, PR45700: requests go on when the weights are back, and the KV cache is not.
     */
    UPDATE_BUG_FORWARD_WITHOUT_KV,
    /* vllm PR45398: memory counts as back when that is asked for, not when it is so. */
    UPDATE_BUG_AWAKE_WHEN_ASKED,
    /* Tandem's own: a drop that does not say of which update. */
    UPDATE_BUG_DROP_OF_NOTHING,
    /* A bucket is entered in the resume_log before its bytes are there. */
    UPDATE_BUG_JOURNAL_BEFORE_BYTES,
    /* A trainer that has its own engine's answer goes on, without a word from the others: it
     * writes a bucket where the one before the last may still be read. */
    UPDATE_BUG_WAITS_FOR_ONE_ENGINE,
    /* A record that is lost is restored as it was before the latest update. */
    UPDATE_BUG_RESTORES_LOWER,
    /* RESTORE writes over whatever there is. */
    UPDATE_BUG_RESTORES_OVER,
    /* BEGIN does not name the epoch that its source knows. */
    UPDATE_BUG_BEGINS_ANEW,
    /* A member that has voted takes "not found" for an abort. */
    UPDATE_BUG_LOST_IS_ABORTED,
    /* A source restores as aborted what members may have heard to be committed. */
    UPDATE_BUG_RESTORES_IN_DOUBT,
    /* A source that starts on an empty record takes the members that it finds. */
    UPDATE_BUG_KEEPS_OLD_MEMBERS
};

/* How weights travel. */
enum update_way {
    UPDATE_BY_NAME,  /* whole tensors: a bucket may come twice, and there is no resume_log */
    UPDATE_BY_COPY,  /* parts; one bucket is written while the one before is read */
    UPDATE_IN_PLACE, /* parts, into the engines' shadows */
    UPDATE_WAYS
};

struct update_limits {
    uint8_t members;
    uint8_t updates; /* begun because somebody wants one; more, where one is needed to serve */
    uint8_t crashes;
    uint8_t losses;  /* of the store's answers */
    uint8_t repeats; /* messages that come twice, the second time whenever */
    uint8_t tears;   /* writes that go wrong */
    uint8_t hurries; /* deadlines that pass although nobody died */
    uint8_t wipes;   /* losses of all that the store has */
    enum update_way way;
    enum update_bug bug;
};

/* Everything below is bytes, so that two states are the same when their bytes are. */

struct update_record {
    uint8_t epoch, highest, version, hash;
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

/* To an engine.  `seen`: the tensor's bytes as the sender has them, in place of their sum.  To
 * join: what a peer has shown, and the sum of that. */
struct update_message {
    uint8_t kind, from, update, epoch, version, hash, tensor;
    uint8_t peer, peer_incarnation, sum;
    uint8_t unheard; /* nobody waits for its answer */
    uint8_t seen[UPDATE_TENSOR_BYTES];
};

enum update_member_todo { MEMBER_RESTS, MEMBER_VOTES, MEMBER_ASKS, MEMBER_REPORTS, MEMBER_JOINS };

struct update_member {
    uint8_t alive, incarnation;
    uint8_t guard_phase, guard_update, guard_epoch;
    uint8_t version; /* of `image`; 0: none, or not yet */
    uint8_t version_highest;
    uint8_t weights, kv, shadow_here;
    uint8_t shadow_key; /* which memory it is */
    uint8_t image[UPDATE_TENSORS][UPDATE_TENSOR_BYTES];
    uint8_t shadow[UPDATE_TENSORS][UPDATE_TENSOR_BYTES];
    uint8_t seen[UPDATE_TENSORS][UPDATE_TENSOR_BYTES];              /* what it has verified */
    uint8_t staged;                                                 /* a bit a tensor */
    uint8_t resume_log_next, resume_log_open, resume_log_unsettled; /* its sums are of `seen` */
    uint8_t hash;                                                   /* voted for, or joins with */
    uint8_t todo, todo_from, todo_version;
    struct update_message call;   /* the driver's */
    struct update_message bucket; /* the trainer's */
};

enum update_driver_todo {
    DRIVER_RESTS,
    DRIVER_CALLS,
    DRIVER_BEGINS,
    DRIVER_MOVES,
    DRIVER_DECIDES,
    DRIVER_RESTORES
};

/* A RESTORE; also what a driver has heard, where nobody is in it. */
struct update_restore {
    uint8_t update, epoch, update_version, base, outcome, settled, version, hash;
    uint8_t source;
    uint8_t members[UPDATE_MEMBERS_MAX]; /* incarnations; 0: not in it */
    uint8_t dead;                        /* a bit each of these */
};

struct update_driver {
    uint8_t alive, incarnation;
    uint8_t phase, open, resident, engines_alive, retries, committed, serving;
    uint8_t todo, call, takes_over;
    uint8_t waiting, workers, fresh; /* a bit an engine; fresh: lives, and got nothing yet */
    uint8_t incarnations[UPDATE_MEMBERS_MAX];
    uint8_t trainer; /* its incarnation */
    uint8_t keys[UPDATE_MEMBERS_MAX];
    uint8_t
        resume_logs[UPDATE_MEMBERS_MAX]; /* told: how many buckets, and a number for their sums */
    uint8_t resume_log_sums[UPDATE_MEMBERS_MAX];
    uint8_t update, epoch, version, hash, failed, asked;
    uint8_t unflipped, asked_commit, after; /* what it restores for */
    uint8_t floor;
    struct update_restore heard; /* its source_state */
};

enum update_trainer_todo {
    TRAINER_RESTS,
    TRAINER_WRITES,
    TRAINER_WRITES_ON, /* half of it is there */
    TRAINER_TELLS,
    TRAINER_WAITS
};

struct update_order {
    uint8_t here, from, update, epoch, version, workers;
    uint8_t incarnations[UPDATE_MEMBERS_MAX];
    uint8_t keys[UPDATE_MEMBERS_MAX];
    uint8_t resume_logs[UPDATE_MEMBERS_MAX]; /* in `work`: how many buckets each need not get */
    uint8_t resume_log_sums[UPDATE_MEMBERS_MAX];
};

struct update_trainer {
    uint8_t alive, incarnation;
    uint8_t weights;           /* which: they change when it learns or starts */
    uint8_t known;             /* buckets of them whose sums it has */
    struct update_order order; /* in its mailbox */
    struct update_order work;
    uint8_t todo, tensor, waiting, failed;
    uint8_t bucket[UPDATE_HALVES][UPDATE_TENSOR_BYTES];
};

struct update_simulator {
    struct update_record record;
    struct update_member members[UPDATE_MEMBERS_MAX];
    struct update_driver driver;
    struct update_trainer trainer;
    struct update_message late; /* once more under way */
    uint8_t late_to, late_incarnation;
    struct update_restore late_restore; /* the same; .update 0: none */
    uint8_t updates_left, crashes_left, losses_left, repeats_left, tears_left, hurries_left;
    uint8_t wipes_left;
    uint8_t ids;                            /* given out */
    uint8_t version_highest;                /* ever given out */
    uint8_t version_told;                   /* the highest that anybody heard to be committed */
    uint8_t id_of[UPDATE_IDS_MAX + 1];      /* whom each version was given to */
    uint8_t weights_highest;                /* ever learned */
    uint8_t weights_of[UPDATE_IDS_MAX + 1]; /* of each version that was sent */
    uint8_t hash_of[UPDATE_IDS_MAX + 1];    /* of each committed version */
};

enum update_event_kind {
    UPDATE_DRIVER_WANTS_UPDATE,
    UPDATE_DRIVER_GOES_ON,
    UPDATE_DRIVER_HEARS_NOTHING, /* asks the store; the answer is lost */
    UPDATE_DRIVER_LEARNS_OF_DEATH,
    UPDATE_DRIVER_LEARNS_OF_TRAINERS_DEATH,
    UPDATE_TRAINER_GOES_ON,
    UPDATE_TRAINER_WRITES_WRONG,
    UPDATE_TRAINER_LEARNS_OF_DEATH,
    UPDATE_MEMBER_TAKES_CALL,
    UPDATE_MEMBER_TAKES_BUCKET,
    UPDATE_MEMBER_GOES_ON,
    UPDATE_MEMBER_HEARS_NOTHING,
    UPDATE_MEMBER_IS_LATE, /* its deadline passes */
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

struct update_event {
    uint8_t kind;   /* enum update_event_kind */
    uint8_t member; /* which engine, if any */
};

enum { UPDATE_EVENTS_MAX = UPDATE_EVENTS * UPDATE_MEMBERS_MAX };

void update_simulator_init(struct update_simulator *world, const struct update_limits *limits);
/* What may come next. */
size_t update_simulator_events(const struct update_limits *limits,
                               const struct update_simulator *world,
                               struct update_event events[UPDATE_EVENTS_MAX]);
/* Makes it happen; NULL, or what may never be and is so now. */
const char *update_simulator_happen(const struct update_limits *limits,
                                    struct update_simulator *world, struct update_event event);
/* Nothing goes wrong by it, and nobody ends. */
bool update_event_is_good(struct update_event event);
/* All live engines serve the committed version, and are asked to. */
bool update_simulator_serves(const struct update_simulator *world);
void update_event_print(const struct update_simulator *before, struct update_event event,
                        const struct update_simulator *after);

#endif
