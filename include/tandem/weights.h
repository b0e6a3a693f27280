/* weights.h - weight updates from one sender to its receivers, without a job. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_WEIGHTS_H
#define TANDEM_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/actor.h>
#include <tandem/tensor.h>
#include <tandem/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A model is an ID (text) and a list of tensors in host memory.  One process sends it;
 * receivers in actors have copies of it.  The calls are
 *
 *   sender    create, connect (finds receivers, first weights), send, send, ..., shutdown
 *   receiver  create, connect (finds the sender, first weights), receive, ..., shutdown
 *
 * Every send makes a version, whose number grows while the sender lives and begins with 1.  A
 * version is all or nothing: it is staged beside the weights that are served, every tensor is
 * compared with the sender's checksum, and every receiver votes.  Only if all have voted does
 * the version go live (docs/protocols/commit.md).  All receivers serve the new version, or all
 * keep the old one.
 *
 * A process may send and receive any number of models, each by objects of its own.  A process
 * that receives a model and sends it on uses `relay_of`.  A model has one sender in a name
 * space at a time; the connect of a second one fails.
 *
 * Several models, such as an actor and a critic, can be a set: every send then makes one version of
 * all of them, which goes live at all receivers of all models, or at none.  At any moment all
 * receivers that serve anything serve the same version.  tdm_weights_sender_create_set() and
 * tdm_weights_receiver_create_set() make a sender and a receiver of a set, for which the other
 * functions work as for those of one model. */
typedef struct tdm_weights_sender tdm_weights_sender;
typedef struct tdm_weights_receiver tdm_weights_receiver;

/* How the bytes travel.  The sender chooses; receivers learn it when they connect.  Steps,
 * checks and failures are the same for all. */
enum tdm_weights_scheme {
    /* A bucket lies in shared memory, once on a node, and is read there; other nodes fetch it
       once. */
    TDM_WEIGHTS_SHARED = 1,
    TDM_WEIGHTS_PROCESSES, /* A bucket travels inside calls. */
    /* A bucket travels by the broadcast of a collective group (collective.h): through shared memory
     * if sender and receivers are on one node, else over TCP from the sender to each receiver.  At
     * most TDM_COLLECTIVE_RANKS_MAX - 1 receivers.  A receiver that is silent is noticed timeout_ms
     * after it should have come. */
    TDM_WEIGHTS_DISTRIBUTED,
    /* Another name of TDM_WEIGHTS_SHARED: each bucket is a call with a reference to it. */
    TDM_WEIGHTS_RPC,
    TDM_WEIGHTS_ACTORS, /* Another name of TDM_WEIGHTS_SHARED, like TDM_WEIGHTS_RPC. */
    /* Like TDM_WEIGHTS_SHARED, to actors that never ask for versions: the sender makes them receive
     * one by a call of tdm_weights_serve(), between their other calls. */
    TDM_WEIGHTS_MODULE,
    TDM_WEIGHTS_NONE /* Versions are counted and agreed on; no bytes travel. */
};
/* Returns the name of a scheme, such as "shared", or NULL for an unknown one.  The text is
 * static. */
TDM_API const char *tdm_weights_scheme_name(enum tdm_weights_scheme scheme);
/* Returns the name of TorchRL's class that a scheme corresponds to, such as
 * "SharedMemWeightSyncScheme"; NULL for an unknown scheme.  The text is static. */
TDM_API const char *tdm_weights_scheme_torchrl(enum tdm_weights_scheme scheme);

/* Returns the name of a strategy of TorchRL, which says in which form weights are taken from a
 * model and put back into it, such as "state_dict".  Numbers begin with 0; NULL beyond the last
 * one.  The text is static. */
TDM_API const char *tdm_weights_strategy_name(uint32_t number);

enum {
    /* Size in bytes of a model's ID, including the terminating NUL. */
    TDM_WEIGHTS_MODEL_BYTES_MAX = 48,
    TDM_WEIGHTS_RECEIVERS_MAX = 256, /* Largest number of receivers of a model. */
    TDM_WEIGHTS_SET_MAX = 16,        /* Largest number of models that are committed together. */
    /* Largest number of bytes that a sender may attach to a version. */
    TDM_WEIGHTS_ATTACHED_BYTES_MAX = 4 << 20
};

/* One tensor of a model that this process sends or receives, in host memory. */
struct tdm_weights_tensor {
    struct tdm_tensor_info info; /* Shape of the whole tensor, row-major; copied. */
    /* Address of the tensor.  Sender: borrowed until shutdown and read by send.  Receiver: new
     * versions are copied there; NULL if Tandem keeps the bytes (see tdm_weights_data()). */
    void *address;
    /* Receiver: it has part number `shard` of `shards_count` equal parts of the first
     * dimension, and `address` has room for that part.  0 shards: it has the whole tensor.  The
     * checksum is always that of the whole tensor. */
    uint32_t shard;
    /* Receiver: number of equal parts of the tensor; 0 stands for the whole tensor. */
    uint32_t shards_count;
};

/* ---- the sender ------------------------------------------------------------------------- */

/* Zero in a field means the default named beside it. */
struct tdm_weights_sender_options {
    const char *model;              /* ID of the model: 1 to 47 letters, digits, '.', '-' or '_'. */
    enum tdm_weights_scheme scheme; /* How the weights travel to the receivers. */
    /* Tensors of the model, with unique names; ignored with relay_of. */
    const struct tdm_weights_tensor *tensors;
    uint32_t tensors_count;   /* Number of entries of `tensors`. */
    uint32_t receivers_count; /* Number of receivers that connect waits for.  Default: 1. */
    /* Milliseconds within which each send or connect must end.  Default: 60,000. */
    int64_t timeout_ms;
    /* Number of bytes that are staged at once; a larger tensor is one bucket.  Default: 16 MiB. */
    size_t bucket_bytes;
    /* For TDM_WEIGHTS_MODULE: the actors that receive.  The handles stay the caller's and must
     * outlive the sender. */
    tdm_actor *const *modules;
    uint32_t modules_count; /* Number of entries of `modules`. */
    /* Receiver whose weights this sender sends on, with the same version numbers; NULL for none.
     * The receiver must outlive the sender, its tensors are whole ones, and `model` differs from
     * the receiver's. */
    tdm_weights_receiver *relay_of;
};

/* Checks and copies the options.  No traffic; never blocks.  The caller shuts the sender down.
 * TDM_E_INVAL names the option or tensor.  On failure `*sender_out` is NULL.  One thread at a
 * time may use a sender. */
TDM_API TDM_MUST_CHECK tdm_status
tdm_weights_sender_create(tdm_runtime *runtime, const struct tdm_weights_sender_options *options,
                          tdm_weights_sender **sender_out);

/* Creates a sender of `count` models, which are committed together.  Each model has options, and so
 * receivers and a scheme, of its own; the longest timeout counts for all.  A set has neither relays
 * (`relay_of`) nor the scheme TDM_WEIGHTS_MODULE.  Otherwise like tdm_weights_sender_create(). */
TDM_API TDM_MUST_CHECK tdm_status tdm_weights_sender_create_set(
    tdm_runtime *runtime, const struct tdm_weights_sender_options *options, uint32_t count,
    tdm_weights_sender **sender_out);

/* Creates the actor "weights/<model>" at which receivers register, waits for `receivers_count`
 * of them, and sends the first weights.  Blocks at most timeout_ms.  TDM_E_EXISTS: the model
 * has a sender.  TDM_E_TIMEOUT says how many receivers have come; the call may be repeated. */
TDM_API tdm_status tdm_weights_sender_connect(tdm_weights_sender *sender);

/* Attaches a copy of `bytes` to every version that is sent from now on, until the next call; to
 * each model of a set.  They may say what the weights are: a step, a learning rate, PyTorch's
 * handles.  Tandem never reads them, but compares their checksum at every receiver, which reads
 * them by tdm_weights_attached(). No bytes: versions have none.  TDM_E_LIMIT: more than
 * TDM_WEIGHTS_ATTACHED_BYTES_MAX bytes. TDM_E_STATE: an asynchronous send is in progress.
 * TDM_E_INVAL: a sender with `relay_of` sends on the bytes of its receiver's version.  A failure
 * changes nothing. */
TDM_API tdm_status tdm_weights_attach(tdm_weights_sender *sender, struct tdm_bytes bytes);

/* Sends the tensors to all receivers that are connected, and blocks until all serve them, at
 * most timeout_ms.  On TDM_OK `*version_out`, which may be NULL, is the version's number.  On
 * failure it is unchanged, and every receiver keeps what it has:
 *
 * - TDM_E_ACTOR_DIED names a receiver that died.  The next send goes without it.  A receiver on
 *   a node that cannot be reached is killed before it counts as dead.
 * - TDM_E_CHECKSUM names the receiver, the tensor and both sums.
 * - TDM_E_TIMEOUT names a receiver that did not come in time.  The next send asks it again,
 *   unless it has died or shut down.  If the version was committed, the detail says so.
 * - TDM_E_NOT_FOUND: no receiver is left.
 * - Other failures are what a receiver failed with; the detail names it. */
TDM_API tdm_status tdm_weights_send(tdm_weights_sender *sender, uint64_t *version_out);

/* Begins a send on a thread of its own.  The tensors must not change before tdm_weights_wait()
 * has given the outcome.  TDM_E_STATE: a send is in progress. */
TDM_API tdm_status tdm_weights_send_async(tdm_weights_sender *sender);
/* Waits at most `timeout_ms` milliseconds for the outcome of tdm_weights_send_async(), which it
 * gives once, as tdm_weights_send() does.  TDM_E_TIMEOUT: the send is still in progress.
 * TDM_E_STATE: no send was begun. */
TDM_API tdm_status tdm_weights_wait(tdm_weights_sender *sender, int64_t timeout_ms,
                                    uint64_t *version_out);

/* Returns the number of receivers to which the last send was addressed, over all models of a set.
 */
TDM_API uint32_t tdm_weights_receivers_count(const tdm_weights_sender *sender);

/* Waits for a send that is in progress, and frees the sender.  Receivers read TDM_E_END from
 * then on, and the model may have another sender.  NULL is allowed. */
TDM_API void tdm_weights_sender_shutdown(tdm_weights_sender *sender);

/* ---- the receiver ----------------------------------------------------------------------- */

/* Zero in a field means the default named beside it. */
struct tdm_weights_receiver_options {
    const char *model; /* ID of the model, the same as the sender's. */
    /* Tensors to receive: some or all of the sender's, in any order. */
    const struct tdm_weights_tensor *tensors;
    uint32_t tensors_count; /* Number of entries of `tensors`. */
    int64_t timeout_ms;     /* Milliseconds within which connect must end.  Default: 60,000. */
    int background;         /* 1: after connect, a thread receives all versions that come. */
    /* Runs after each version has gone live, on the thread that received it, under no lock.  It
     * may flush caches or send the version on.  May be NULL. */
    void (*on_version)(void *arg, uint64_t version);
    void *arg; /* First argument of on_version(). */
};

/* Checks and copies the options.  No traffic; never blocks.  The caller shuts the receiver
 * down.  TDM_E_STATE: this process is not an actor.  TDM_E_EXISTS: the actor has a receiver of
 * the model.  On failure
 * `*receiver_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_weights_receiver_create(
    tdm_runtime *runtime, const struct tdm_weights_receiver_options *options,
    tdm_weights_receiver **receiver_out);

/* Creates a receiver of `count` models of one set: some or all of those that their sender sends
 * together.  tdm_weights_receive() then returns when the new version of all of them is live, and
 * tdm_weights_read_begin() lets threads read one version of all of them.  `background` must be the
 * same in all options; each on_version() runs when all models are live.  Otherwise like
 * tdm_weights_receiver_create(). */
TDM_API TDM_MUST_CHECK tdm_status tdm_weights_receiver_create_set(
    tdm_runtime *runtime, const struct tdm_weights_receiver_options *options, uint32_t count,
    tdm_weights_receiver **receiver_out);

/* Returns the receiver of one model of a set, for tdm_weights_data() and tdm_weights_attached()
 * only; NULL if the set does not have the model.  It is valid as long as `receiver`. */
TDM_API const tdm_weights_receiver *tdm_weights_receiver_of(const tdm_weights_receiver *receiver,
                                                            const char *model);

/* Waits for the sender, compares the tensors with the sender's, and receives the first weights,
 * or the next ones if it comes later.  Blocks at most timeout_ms.  TDM_E_INVAL names a tensor
 * that the sender does not have, or has in another shape, or a model of a receiver's set that is
 * not sent together with the others. */
TDM_API tdm_status tdm_weights_receiver_connect(tdm_weights_receiver *receiver);

/* Waits at most `timeout_ms` milliseconds for a new version to go live here; 0 looks without
 * waiting.  A version that has begun to arrive is awaited to its end, at most as long as the
 * sender does.  A version that fails ends the wait and changes nothing: TDM_E_CHECKSUM names
 * the tensor that came wrong to this receiver, TDM_E_ABORTED says that the version failed
 * elsewhere.  TDM_E_TIMEOUT: no version came.  TDM_E_END: the sender has shut down or died.
 * With `background` this function waits for what the thread has received; versions between two
 * calls count once, and the newest is given.  `*version_out` may be NULL.  One thread at a
 * time. */
TDM_API tdm_status tdm_weights_receive(tdm_weights_receiver *receiver, int64_t timeout_ms,
                                       uint64_t *version_out);

/* Begins to read the tensors, which do not change until tdm_weights_read_end().  Any number of
 * threads may read at the same time; a version that goes live waits for them, and they for it.
 * With a set all models have the same version, and none changes in between.  A thread that reads
 * two models of a sender's set by two receivers may wait for itself; it should have a receiver of a
 * set. tdm_weights_receive() must not be called in between.  `*version_out` may be NULL.
 * TDM_E_STATE: there is no version yet, or this receiver has voted and does not know the outcome;
 * receive again then. */
TDM_API tdm_status tdm_weights_read_begin(tdm_weights_receiver *receiver, uint64_t *version_out);
/* Ends the reading that tdm_weights_read_begin() began. */
TDM_API void tdm_weights_read_end(tdm_weights_receiver *receiver);

/* Returns tensor number `index` of the receiver's list, or its part, between
 * tdm_weights_read_begin() and tdm_weights_read_end(): at its own address, or in read-only shared
 * memory of Tandem, aligned to 8 bytes.  NULL past the end. */
TDM_API const void *tdm_weights_data(const tdm_weights_receiver *receiver, uint32_t index);

/* Returns the bytes that the sender has attached to the served version, between
 * tdm_weights_read_begin() and tdm_weights_read_end(); without data if there are none. */
TDM_API struct tdm_bytes tdm_weights_attached(const tdm_weights_receiver *receiver);

/* Ends the background thread and frees the receiver with the memory that Tandem keeps for it. The
 * next send goes without this receiver.  NULL is allowed. */
TDM_API void tdm_weights_receiver_shutdown(tdm_weights_receiver *receiver);

/* A method for TDM_WEIGHTS_MODULE, which the actor's class lists as
 *     {TDM_WEIGHTS_METHOD, tdm_weights_serve}
 * The actor creates its receiver when it is constructed; the sender does the rest.  Other
 * methods run before or after it, so that each of them sees one whole version.  `self` is not
 * used. */
#define TDM_WEIGHTS_METHOD "tandem.weights"
/* Receives one version for the sender that calls the method. */
TDM_API tdm_status tdm_weights_serve(tdm_call *call, void *self);

#ifdef __cplusplus
}
#endif

#endif
