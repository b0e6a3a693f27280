/* weights.h - new weights for a loop of one's own: from one sender to its receivers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_WEIGHTS_H
#define TANDEM_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/actor.h>
#include <tandem/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A *model* is an id (text) and a list of tensors in host memory.  One process sends it,
 * receivers in actors have copies of it.  The life of both ends is
 *
 *     sender    create (no traffic) → connect (meet, first weights) → send, send … → shutdown
 *     receiver  create (no traffic) → connect (meet, first weights) → receive, … → shutdown
 *
 * Every send is a *version*, with a number that only grows as long as the sender lives (it
 * begins with 1), and it is all or nothing: it is staged beside what is served, every tensor is
 * compared with the sender's checksum, every receiver votes, and only when all have voted does
 * the version go live (docs/protocols/commit.md).  All receivers of a model serve the new
 * version, or all go on with the old one.
 *
 * A process may send and receive any number of models, each by objects of its own.  Where a
 * process receives one model and sends it on, see `relay_of`.
 *
 * Two senders of one model in one name space at a time: the second one's connect fails. */
typedef struct tdm_weights_sender tdm_weights_sender;
typedef struct tdm_weights_receiver tdm_weights_receiver;

/* How the bytes get across.  The sender chooses; receivers learn it when they connect.  The
 * steps, the checks and the failures are the same for all. */
enum tdm_weights_scheme {
    TDM_WEIGHTS_SHARED = 1,  /* a bucket lies in shared memory, once on a node, and is read
                                there; on other nodes it is fetched once */
    TDM_WEIGHTS_PROCESSES,   /* a bucket travels inside calls */
    TDM_WEIGHTS_DISTRIBUTED, /* by the broadcast of a group (group.h): receivers on one node;
                                one that is silent is noticed timeout_ms after it should have
                                come */
    TDM_WEIGHTS_RPC,         /* a call for each bucket that carries a reference to it, … */
    TDM_WEIGHTS_ACTORS,      /* … which is what TDM_WEIGHTS_SHARED does too: three names, for
                                those who come with one of them, and one way */
    TDM_WEIGHTS_MODULE,      /* the same to actors that never ask: the sender has them receive
                                by a call of tdm_weights_serve(), between their other calls */
    TDM_WEIGHTS_NONE         /* versions are counted and agreed on, no byte moves */
};
/* "shared" …; NULL for an unknown one. */
TDM_API const char *tdm_weights_scheme_name(enum tdm_weights_scheme scheme);

enum { TDM_WEIGHTS_MODEL_BYTES_MAX = 48, TDM_WEIGHTS_RECEIVERS_MAX = 256 };

/* One tensor of this process.  Shapes are those of whole tensors, row-major, and in host
 * memory. */
struct tdm_weights_tensor {
    struct tdm_tensor_info info; /* copied */
    /* Where it lies.  Sender: read by send, borrowed until shutdown.  Receiver: new versions
     * are copied there; or NULL, and Tandem keeps the bytes: see tdm_weights_data(). */
    void *address;
    /* Receiver: 0, or it holds part number `shard` of `shards_count` equal parts of the first
     * dimension, and `address` has room for that part.  The checksum is that of the whole. */
    uint32_t shard;
    uint32_t shards_count;
};

/* ---- the sender ------------------------------------------------------------------------- */

/* Zero in a field means the default named beside it. */
struct tdm_weights_sender_options {
    const char *model; /* 1 to 47 letters, digits, '.', '-' or '_' */
    enum tdm_weights_scheme scheme;
    const struct tdm_weights_tensor *tensors; /* unique names; NULL with relay_of */
    uint32_t tensors_count;
    uint32_t receivers_count; /* connect waits until so many have come: 1 */
    int64_t timeout_ms;       /* of each send and connect: 60,000 */
    size_t bucket_bytes;      /* what is staged at once; a larger tensor is a bucket: 16 MiB */
    /* TDM_WEIGHTS_MODULE: the actors; the handles stay the caller's, and live longer. */
    tdm_actor *const *modules;
    uint32_t modules_count;
    /* Cascade: sends what this receiver has, under the number of the version that it has.  It
     * lives longer than the sender; `model` must be another id than the receiver's.  Its
     * tensors are whole ones. */
    tdm_weights_receiver *relay_of;
};

/* Checks and copies the options; no traffic.  TDM_E_INVAL names the field or tensor. */
TDM_API tdm_status tdm_weights_sender_create(tdm_runtime *runtime,
                                             const struct tdm_weights_sender_options *options,
                                             tdm_weights_sender **sender_out);

/* Opens the place where receivers meet (an actor named "weights/<model>"), waits for
 * `receivers_count` of them and sends the first weights.  TDM_E_EXISTS: the model has a sender.
 * TDM_E_TIMEOUT: says how many have come; may be called again. */
TDM_API tdm_status tdm_weights_sender_connect(tdm_weights_sender *sender);

/* Sends the tensors as they are now, to all receivers that are connected; blocks until all
 * serve them.  On TDM_OK `*version_out` (may be NULL) is its number.  On failure every receiver
 * goes on with what it has:
 *   TDM_E_ACTOR_DIED   names a receiver that died.  The next send goes without it.  One on a
 *                      node that cannot be reached is killed before it counts as dead.
 *   TDM_E_CHECKSUM     names the receiver, the tensor and both sums
 *   TDM_E_TIMEOUT      names a receiver that did not come in time: it lives, and so the next
 *                      send asks for it again, unless it is killed or shuts down
 *   TDM_E_NOT_FOUND    there is no receiver any more
 *   others             what a receiver failed with, and which
 * Only after the decision is the version there to stay: TDM_E_TIMEOUT then says that it is
 * committed, and who has not reported. */
TDM_API tdm_status tdm_weights_send(tdm_weights_sender *sender, uint64_t *version_out);

/* The same on a thread of its own, one at a time (TDM_E_STATE): the tensors are not to be
 * changed before tdm_weights_wait() has given the outcome, which it gives once; TDM_E_TIMEOUT
 * when it is not there yet, TDM_E_STATE when nothing was sent. */
TDM_API tdm_status tdm_weights_send_async(tdm_weights_sender *sender);
TDM_API tdm_status tdm_weights_wait(tdm_weights_sender *sender, int64_t timeout_ms,
                                    uint64_t *version_out);

/* How many receivers the last send counted on. */
TDM_API uint32_t tdm_weights_receivers_count(const tdm_weights_sender *sender);

/* Waits for a send under way; receivers read TDM_E_END from then on, and the model may have
 * another sender.  NULL is allowed.  A sender is for one thread at a time. */
TDM_API void tdm_weights_sender_shutdown(tdm_weights_sender *sender);

/* ---- the receiver ----------------------------------------------------------------------- */

/* Zero in a field means the default named beside it. */
struct tdm_weights_receiver_options {
    const char *model;
    const struct tdm_weights_tensor *tensors; /* some or all of the sender's, in any order */
    uint32_t tensors_count;
    int64_t timeout_ms; /* of connect: 60,000 */
    int background;     /* 1: after connect a thread receives, whenever something comes */
    /* May be NULL.  Runs after each version has gone live, on the thread that received it: for
     * flushing caches, and for sending on to receivers of one's own.  Not under any lock. */
    void (*on_version)(void *arg, uint64_t version);
    void *arg;
};

/* In an actor (TDM_E_STATE elsewhere): the runtime can tell that it has died.  One receiver of
 * a model at a time in an actor: TDM_E_EXISTS.  No traffic. */
TDM_API tdm_status tdm_weights_receiver_create(
    tdm_runtime *runtime, const struct tdm_weights_receiver_options *options,
    tdm_weights_receiver **receiver_out);

/* Waits for the sender, compares the tensors with its own (TDM_E_INVAL names one that it does
 * not have, or has in another shape) and receives the first weights.  A receiver that comes
 * later than the first weights gets the next ones.  TDM_E_TIMEOUT. */
TDM_API tdm_status tdm_weights_receiver_connect(tdm_weights_receiver *receiver);

/* Waits until a new version is live here, and returns at once when it is.  TDM_E_TIMEOUT: none
 * came in time; 0 looks without waiting.  Once one has begun to arrive this waits for its end,
 * at most as long as the sender does.  A version that failed ends the wait as well, and changes
 * nothing of what is served: TDM_E_CHECKSUM names the tensor that came wrong to this receiver,
 * TDM_E_ABORTED says that the version failed elsewhere.  TDM_E_END: the sender has shut down,
 * or is gone.  With `background` this only waits for what the thread has received; versions
 * between two calls count once, and the newest is told.  One thread at a time. */
TDM_API tdm_status tdm_weights_receive(tdm_weights_receiver *receiver, int64_t timeout_ms,
                                       uint64_t *version_out);

/* Between these two the tensors do not change, whoever receives.  Any thread, any number at
 * once; a version that goes live waits for them, and they for it.  TDM_E_STATE before the first
 * version, and while this receiver has voted and cannot learn the outcome: receive again.
 * tdm_weights_receive() is not to be called in between. */
TDM_API tdm_status tdm_weights_read_begin(tdm_weights_receiver *receiver,
                                          uint64_t *version_out);
TDM_API void tdm_weights_read_end(tdm_weights_receiver *receiver);

/* Tensor number `index` of the receiver's list, or its part; between the two calls above.  Its
 * own address; or where Tandem keeps it: shared read-only memory, aligned to 8 bytes. */
TDM_API const void *tdm_weights_data(const tdm_weights_receiver *receiver, uint32_t index);

/* Ends the background thread, forgets the memory that Tandem kept.  The next send goes without
 * it.  NULL is allowed. */
TDM_API void tdm_weights_receiver_shutdown(tdm_weights_receiver *receiver);

/* For TDM_WEIGHTS_MODULE: a method that the actor's class lists as
 *     {TDM_WEIGHTS_METHOD, tdm_weights_serve}
 * The actor creates its receiver when it is constructed; the sender does the rest.  Its other
 * methods run before or after it, so each runs on one whole version. */
#define TDM_WEIGHTS_METHOD "tandem.weights"
TDM_API tdm_status tdm_weights_serve(tdm_call *call, void *self);

#ifdef __cplusplus
}
#endif

#endif
