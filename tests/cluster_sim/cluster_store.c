/* cluster_store.c - the store of the simulated cluster: requests and replies that take time, get
 * lost and are repeated. */
/* SPDX-License-Identifier: Apache-2.0 */

/* An operation belongs to its client until its completion is queued or the client is closed, and
 * lives as long as requests about it are under way. A client has a connection, on which requests
 * stay in order, as replies do; a cut link or a stopped store delays them. When a connection drops,
 * its replies are lost, and its requests are lost or carried out although nobody waits for them any
 * more. Renewals then fail, and all other operations are sent again on a new connection. Requests
 * are timed on the loop of the store's process and replies on that of the client's, so that a
 * stopped process gets its replies when it goes on. */
#include "tests/cluster_sim/cluster_store.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/completion.h"
#include "runtime/store/watchers.h"
#include "tests/cluster_sim/network.h"
#include "tests/cluster_sim/store_rules.h"
#include "tests/sim/sim.h"
#include "tests/support/memory_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum { DELAYED_LOOK_MS = 50, PATTERNS_MAX = 96 };
enum operation_kind { READS, COMMITS, RENEWS };

struct client;

struct operation {
    TAILQ_ENTRY(operation) link;
    struct client *client; /* NULL once the operation has ended for its client. */
    uint32_t references;   /* The client's, and one for each request. */
    uint32_t copies_count; /* How often the request was sent. */
    enum operation_kind kind;
    struct tdm__store_completion *completion; /* Owned until it is queued. */
    struct tdm__timer *timer;                 /* Deadline, on the client's loop. */
    char writer[TDM__ID_TEXT_BYTES];
    uint32_t machine;
    char *patterns[PATTERNS_MAX]; /* owned */
    uint32_t patterns_count;
    struct tdm__store_write *writes; /* owned, with keys and bytes */
    uint32_t writes_count;
    struct tdm__store_renewal renewal; /* The key is owned. */
    struct tdm__redis_numbered_commit numbered;
};

/* A request that is under way, and then its reply. */
struct message {
    TAILQ_ENTRY(message) link;
    struct operation *operation;
    int64_t at_ms; /* When it arrives. */
    struct tdm__redis_commit_stamp stamp;
    tdm_status status;
    char detail[256];
    struct tdm__store_records *records; /* owned */
    struct tdm__store_renewed renewed;
    uint64_t version;
};
TAILQ_HEAD(messages, message);

/* A connection to the store, which outlasts its client while it has requests. */
struct connection {
    LIST_ENTRY(connection) link;
    struct client *client; /* NULL once it has dropped. */
    uint32_t machine;
    struct messages requests;
    struct tdm__timer *timer; /* Arrival of the first request. */
};

struct client {
    struct tdm__store store; /* first */
    LIST_ENTRY(client) link;
    uint32_t machine;
    struct tdm__loop *loop;
    struct connection *connection;
    int64_t opens_ms; /* When its connection is open. */
    struct tdm__store_completions *completions;
    struct tdm__redis_commit_session session;
    TAILQ_HEAD(, operation) operations;
    struct messages replies;
    struct tdm__timer *reply_timer; /* Arrival of the first reply. */
    struct tdm__timer *connected_timer;
    void (*on_connected)(void *arg);
    void *on_connected_arg;
};

static struct {
    struct sim_process *process;
    struct tdm__loop *loop;
    struct tdm__store *memory;
    LIST_HEAD(, connection) connections;
    LIST_HEAD(, client) clients;
    enum cluster_store_fault fault;
    uint32_t loss_one_in;
    const char *held_name; /* Key of a name; commits of a machine that change it are held back. */
    uint32_t held_machine; /* Number of that machine. */
    bool name_is_claimed;  /* Whether one that writes the name was sent. */
    int64_t lost_data_ms;  /* When it last lost its data; 0 if never. */
    bool was_restarted;
    bool is_ending;
} cluster_store;

/* ---- operations ------------------------------------------------------------------------- */

static void operation_release(struct operation *operation)
{
    if (--operation->references > 0) {
        return;
    }
    for (uint32_t i = 0; i < operation->patterns_count; i++) {
        free(operation->patterns[i]);
    }
    for (uint32_t i = 0; i < operation->writes_count; i++) {
        free((char *)operation->writes[i].key);
        free((char *)operation->writes[i].bytes.data);
    }
    free(operation->writes);
    free((char *)operation->renewal.key);
    free(operation);
}

/* Takes the operation from its client. */
static void operation_end(struct operation *operation)
{
    struct client *client = operation->client;

    tdm__redis_commit_session_settle(&client->session, &operation->numbered);
    TAILQ_REMOVE(&client->operations, operation, link);
    tdm__timer_destroy(operation->timer);
    operation->client = NULL;
    operation_release(operation);
}

static void operation_complete(struct operation *operation, tdm_status status,
                               struct tdm__store_records *records)
{
    tdm__store_completions_add(operation->client->completions, operation->completion, status,
                               records);
    operation_end(operation);
}

static int64_t delay_ms(void)
{
    switch (sim_below(40)) {
    case 0:
        return sim_below(1500);
    case 1:
    case 2:
        return sim_below(200);
    default:
        return sim_below(3);
    }
}

static void message_free(struct message *message)
{
    operation_release(message->operation);
    free(message->records);
    free(message);
}

static void messages_free(struct messages *messages)
{
    struct message *message;

    while ((message = TAILQ_FIRST(messages)) != NULL) {
        TAILQ_REMOVE(messages, message, link);
        message_free(message);
    }
}

/* Returns the write of the operation by which it is held back; NULL if it is not. */
static const struct tdm__store_write *held_write(const struct operation *operation)
{
    if (cluster_store.held_name == NULL || operation->machine != cluster_store.held_machine) {
        return NULL;
    }
    for (uint32_t i = 0; i < operation->writes_count; i++) {
        if (operation->writes[i].kind <= TDM__STORE_DELETE &&
            strcmp(operation->writes[i].key, cluster_store.held_name) == 0) {
            return &operation->writes[i];
        }
    }
    return NULL;
}

/* Appends a message that arrives after a delay, and not before the one in front of it. */
static void messages_add(struct messages *messages, struct message *message, int64_t earliest_ms,
                         struct tdm__timer *timer)
{
    const struct message *last = TAILQ_LAST(messages, messages);

    message->at_ms = sim_now_ms() + delay_ms();
    message->at_ms = message->at_ms < earliest_ms ? earliest_ms : message->at_ms;
    if (last == NULL) {
        (void)tdm__timer_set(timer, message->at_ms);
    } else if (message->at_ms < last->at_ms) {
        message->at_ms = last->at_ms;
    }
    TAILQ_INSERT_TAIL(messages, message, link);
}

/* Removes the first message and returns it, or returns NULL and waits if it has not arrived. */
static struct message *messages_take(struct messages *messages, bool is_delayed,
                                     struct tdm__timer *timer)
{
    struct message *message = TAILQ_FIRST(messages);
    const struct message *next = message == NULL ? NULL : TAILQ_NEXT(message, link);

    if (message == NULL) {
        return NULL;
    }
    if (is_delayed || message->at_ms > sim_now_ms()) {
        (void)tdm__timer_set(timer, is_delayed ? sim_now_ms() + DELAYED_LOOK_MS : message->at_ms);
        return NULL;
    }
    TAILQ_REMOVE(messages, message, link);
    if (next != NULL) {
        (void)tdm__timer_set(timer, next->at_ms);
    }
    return message;
}

/* ---- replies ---------------------------------------------------------------------------- */

static void operation_send(struct operation *operation);

/* The server does not know the session: a commit that was sent once gets another number. */
static void session_is_unknown(struct operation *operation, uint64_t session)
{
    tdm__redis_commit_session_forget(&operation->client->session, session);
    if (operation->copies_count > 1) {
        (void)tdm__fail(TDM_E_STORE, "the store has forgotten whether it made the commit");
        operation_complete(operation, TDM_E_STORE, NULL);
        return;
    }
    tdm__redis_commit_session_settle(&operation->client->session, &operation->numbered);
    operation_send(operation);
}

static void reply_arrives(struct message *message)
{
    struct operation *operation = message->operation;

    (void)tdm__fail(message->status, "%s", message->detail);
    if (operation->kind == COMMITS && message->status == TDM_E_NOT_FOUND) {
        session_is_unknown(operation, message->stamp.session);
        return;
    }
    tdm__store_completion_set_version(operation->completion, message->version);
    if (operation->kind == RENEWS && message->status == TDM_OK) {
        tdm__store_completion_set_renewed(operation->completion, &message->renewed);
    }
    operation_complete(operation, message->status, message->records);
    message->records = NULL;
}

static void on_reply(void *arg)
{
    struct client *client = arg;
    struct message *message = messages_take(
        &client->replies, network_is_cut(STORE_MACHINE, client->machine), client->reply_timer);

    if (message != NULL && message->operation->client != NULL) {
        reply_arrives(message);
    }
    if (message != NULL) {
        message_free(message);
    }
}

/* ---- connections -------------------------------------------------------------------------- */

static tdm_status message_commit(struct message *message)
{
    const struct operation *operation = message->operation;
    tdm_status status;

    store_rules_before_commit(cluster_store.memory, operation->writes, operation->writes_count);
    status = memory_store_deliver(cluster_store.memory, operation->writer, &message->stamp,
                                  operation->writes, operation->writes_count, &message->version);
    store_rules_after_commit(cluster_store.memory, operation->machine, operation->writes,
                             operation->writes_count, status);
    return status;
}

static tdm_status message_execute(struct message *message)
{
    struct operation *operation = message->operation;
    tdm_status status;

    switch (operation->kind) {
    case READS:
        return memory_store_read(cluster_store.memory, (const char *const *)operation->patterns,
                                 operation->patterns_count, &message->records);
    case COMMITS:
        return message_commit(message);
    case RENEWS:
        break;
    }
    store_rules_before_renewal(operation->machine, &operation->renewal);
    status = memory_store_renew(cluster_store.memory, &operation->renewal, &message->renewed,
                                &message->records);
    store_rules_after_renewal(operation->machine, operation->writer, status);
    return status;
}

static void connection_free(struct connection *connection)
{
    messages_free(&connection->requests);
    tdm__timer_destroy(connection->timer);
    LIST_REMOVE(connection, link);
    free(connection);
}

/* Carries out the first request of a connection, and returns its reply. */
static void on_request(void *arg)
{
    struct connection *connection = arg;
    struct client *client = connection->client;
    const struct message *first = TAILQ_FIRST(&connection->requests);
    bool is_delayed = cluster_store.fault != STORE_ANSWERS ||
                      network_is_cut(connection->machine, STORE_MACHINE) ||
                      (first != NULL && held_write(first->operation) != NULL);
    struct message *message = messages_take(&connection->requests, is_delayed, connection->timer);

    if (message != NULL) {
        message->status = message_execute(message);
        if (message->status != TDM_OK) {
            (void)snprintf(message->detail, sizeof(message->detail), "%s", tdm_error_detail());
        }
    }
    if (message != NULL && client != NULL) {
        messages_add(&client->replies, message, 0, client->reply_timer);
    } else if (message != NULL) {
        message_free(message);
    }
    if (client == NULL && TAILQ_EMPTY(&connection->requests)) {
        connection_free(connection);
    }
}

static struct connection *connection_open(struct client *client)
{
    struct connection *connection = calloc(1, sizeof(*connection));

    TDM_ASSERT(connection != NULL);
    connection->client = client;
    connection->machine = client->machine;
    TAILQ_INIT(&connection->requests);
    TDM_ASSERT(tdm__timer_create(cluster_store.loop, on_request, connection, &connection->timer) ==
               TDM_OK);
    LIST_INSERT_HEAD(&cluster_store.connections, connection, link);
    return connection;
}

/* The connection drops: its requests are lost, or arrive nevertheless. */
static void connection_drop(struct connection *connection, bool keeps_requests)
{
    connection->client = NULL;
    if (TAILQ_EMPTY(&connection->requests) || !keeps_requests) {
        connection_free(connection);
    }
}

static void client_reconnect(struct client *client, bool keeps_requests)
{
    struct operation *operation;
    struct operation *next;

    connection_drop(client->connection, keeps_requests);
    messages_free(&client->replies);
    client->connection = connection_open(client);
    client->opens_ms = sim_now_ms() + 1 + sim_below(300);
    (void)tdm__timer_set(client->connected_timer, client->opens_ms);
    for (operation = TAILQ_FIRST(&client->operations); operation != NULL; operation = next) {
        next = TAILQ_NEXT(operation, link);
        if (operation->kind == RENEWS) {
            (void)tdm__fail(TDM_E_STORE, "the connection was lost");
            operation_complete(operation, TDM_E_STORE, NULL);
        } else {
            operation_send(operation);
        }
    }
}

/* ---- requests --------------------------------------------------------------------------- */

/* Gives a commit its number; the session is opened without a message. */
static void operation_stamp(struct operation *operation)
{
    struct tdm__redis_commit_session *session = &operation->client->session;

    if (session->number == 0) {
        session->number = memory_store_open_session(cluster_store.memory, session->writer,
                                                    tdm__redis_commit_session_lowest(session));
    }
    tdm__redis_commit_session_stamp(session, &operation->numbered);
}

static const char *operation_text(const struct operation *operation)
{
    switch (operation->kind) {
    case READS:
        return operation->patterns[0];
    case COMMITS:
        return operation->writes[0].key;
    case RENEWS:
        break;
    }
    return "a renewal";
}

static void operation_send(struct operation *operation)
{
    struct client *client = operation->client;
    const struct tdm__store_write *write;
    struct message *message;

    if (client->store.closing) { /* A callback may start an operation then. */
        operation_complete(operation, TDM_E_STORE, NULL);
        return;
    }
    if (operation->kind == COMMITS && operation->numbered.stamp.number == 0) {
        operation_stamp(operation);
    }
    write = held_write(operation);
    cluster_store.name_is_claimed |= write != NULL && write->kind == TDM__STORE_PUT;
    operation->copies_count++;
    sim_trace("asks the store: %s, copy %u", operation_text(operation), operation->copies_count);
    message = calloc(1, sizeof(*message));
    TDM_ASSERT(message != NULL);
    message->operation = operation;
    message->stamp = operation->numbered.stamp;
    operation->references++;
    messages_add(&client->connection->requests, message, client->opens_ms,
                 client->connection->timer);
}

/* Sends the first copy of an operation. Now and then the connection drops then. */
static void operation_start(struct operation *operation)
{
    struct client *client = operation->client;

    operation_send(operation);
    if (!client->store.closing && cluster_store.loss_one_in > 0 &&
        sim_below(cluster_store.loss_one_in) == 0) {
        client_reconnect(client, sim_below(2) == 0);
    }
}

/* The deadline of the operation has passed. */
static void on_operation_timer(void *arg)
{
    (void)tdm__fail(TDM_E_STORE, "the store does not answer");
    operation_complete(arg, TDM_E_STORE, NULL);
}

static struct operation *operation_create(struct client *client, enum operation_kind kind,
                                          int64_t deadline_ms)
{
    struct operation *operation = calloc(1, sizeof(*operation));

    TDM_ASSERT(operation != NULL);
    operation->client = client;
    operation->references = 1;
    operation->kind = kind;
    operation->machine = client->machine;
    memcpy(operation->writer, client->session.writer, sizeof(operation->writer));
    TAILQ_INSERT_TAIL(&client->operations, operation, link);
    TDM_ASSERT(tdm__timer_create(client->loop, on_operation_timer, operation, &operation->timer) ==
               TDM_OK);
    (void)tdm__timer_set(operation->timer, deadline_ms);
    return operation;
}

/* ---- the interface ---------------------------------------------------------------------- */

static void client_read(struct tdm__store *store, const char *const *patterns,
                        uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                        void *arg)
{
    struct operation *operation = operation_create((struct client *)store, READS, deadline_ms);

    TDM_ASSERT(patterns_count <= PATTERNS_MAX);
    operation->completion = tdm__store_completion_of_read(fn, arg);
    for (uint32_t i = 0; i < patterns_count; i++) {
        operation->patterns[i] = strdup(patterns[i]);
        TDM_ASSERT(operation->patterns[i] != NULL);
    }
    operation->patterns_count = patterns_count;
    operation_start(operation);
}

static void client_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                          uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                          void *arg)
{
    struct operation *operation = operation_create((struct client *)store, COMMITS, deadline_ms);

    operation->completion = tdm__store_completion_of_commit(fn, arg);
    operation->writes = calloc(writes_count + 1u, sizeof(*writes));
    TDM_ASSERT(operation->writes != NULL);
    for (uint32_t i = 0; i < writes_count; i++) {
        char *bytes = malloc(writes[i].bytes.size_bytes + 1);

        operation->writes[i] = writes[i];
        operation->writes[i].key = strdup(writes[i].key);
        TDM_ASSERT(bytes != NULL && operation->writes[i].key != NULL);
        if (writes[i].bytes.size_bytes > 0) {
            memcpy(bytes, writes[i].bytes.data, writes[i].bytes.size_bytes);
        }
        operation->writes[i].bytes.data = bytes;
    }
    operation->writes_count = writes_count;
    operation_start(operation);
}

static void client_renew(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                         int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg)
{
    struct operation *operation = operation_create((struct client *)store, RENEWS, deadline_ms);

    operation->completion = tdm__store_completion_of_renewal(fn, arg);
    operation->renewal = *renewal;
    operation->renewal.key = strdup(renewal->key);
    TDM_ASSERT(operation->renewal.key != NULL);
    operation_start(operation);
}

/* No daemon watches records. */
static tdm_status client_watch(struct tdm__store *store, const char *prefix,
                               tdm__store_changed_fn *fn, void *arg)
{
    (void)store;
    (void)fn;
    (void)arg;
    return tdm__fail(TDM_E_STATE, "the simulated store cannot watch %s", prefix);
}

static void client_close(struct tdm__store *store)
{
    struct client *client = (struct client *)store;

    store->closing = true;
    connection_drop(client->connection, sim_below(2) == 0);
    messages_free(&client->replies);
    while (!TAILQ_EMPTY(&client->operations)) {
        operation_complete(TAILQ_FIRST(&client->operations), TDM_E_STORE, NULL);
    }
    tdm__store_completions_destroy(client->completions);
    tdm__timer_destroy(client->connected_timer);
    tdm__timer_destroy(client->reply_timer);
    LIST_REMOVE(client, link);
    free(client);
}

static const struct tdm__store_ops client_ops = {.name = "simulated",
                                                 .close = client_close,
                                                 .read = client_read,
                                                 .commit = client_commit,
                                                 .watch = client_watch,
                                                 .renew = client_renew};

static void on_client_connected(void *arg)
{
    const struct client *client = arg;

    client->on_connected(client->on_connected_arg);
}

struct tdm__store *cluster_store_connect(struct tdm__loop *loop, const struct tdm__id *writer,
                                         void (*fn)(void *arg), void *arg)
{
    struct client *client = calloc(1, sizeof(*client));

    TDM_ASSERT(client != NULL);
    client->store.ops = &client_ops;
    client->loop = loop;
    client->machine = sim_process_machine(sim_self());
    client->on_connected = fn;
    client->on_connected_arg = arg;
    TAILQ_INIT(&client->operations);
    TAILQ_INIT(&client->replies);
    TDM_ASSERT(tdm__redis_commit_session_init(&client->session) == TDM_OK);
    (void)tdm__id_text(writer, client->session.writer);
    TDM_ASSERT(tdm__store_completions_create(loop, &client->completions) == TDM_OK);
    TDM_ASSERT(tdm__timer_create(loop, on_client_connected, client, &client->connected_timer) ==
               TDM_OK);
    TDM_ASSERT(tdm__timer_create(loop, on_reply, client, &client->reply_timer) == TDM_OK);
    client->connection = connection_open(client);
    LIST_INSERT_HEAD(&cluster_store.clients, client, link);
    return &client->store;
}

/* ---- the server ------------------------------------------------------------------------- */

/* The connections of all clients drop. */
static void drop_connections(void)
{
    struct client *client;

    LIST_FOREACH(client, &cluster_store.clients, link)
    {
        client_reconnect(client, false);
    }
}

void cluster_store_set_fault(enum cluster_store_fault fault)
{
    cluster_store.fault = fault;
    if (fault == STORE_IS_BROKEN) {
        drop_connections();
    }
}

void cluster_store_set_losses(uint32_t one_in)
{
    cluster_store.loss_one_in = one_in;
}

void cluster_store_hold_name(const char *key, uint32_t machine)
{
    cluster_store.held_name = key;
    cluster_store.held_machine = machine;
    cluster_store.name_is_claimed = false;
}

bool cluster_store_name_is_claimed(void)
{
    return cluster_store.name_is_claimed;
}

void cluster_store_restart_without_actors(void)
{
    memory_store_forget(cluster_store.memory, "name/");
    memory_store_forget(cluster_store.memory, "actor/");
    memory_store_replace(cluster_store.memory);
    cluster_store.lost_data_ms = sim_now_ms();
    cluster_store.was_restarted = true;
    drop_connections();
}

void cluster_store_restart(bool keeps_data)
{
    if (keeps_data) {
        memory_store_replace(cluster_store.memory);
    } else {
        memory_store_clear(cluster_store.memory);
        cluster_store.lost_data_ms = sim_now_ms();
    }
    cluster_store.was_restarted = true;
    drop_connections();
}

bool cluster_store_was_restarted(void)
{
    return cluster_store.was_restarted;
}

int64_t cluster_store_lost_data_ms(void)
{
    return cluster_store.lost_data_ms;
}

const struct tdm__store *cluster_store_memory(void)
{
    return cluster_store.memory;
}

static bool is_ending(void *arg)
{
    (void)arg;
    return cluster_store.is_ending;
}

static void store_main(void *arg)
{
    (void)arg;
    TDM_ASSERT(tdm__loop_create(&cluster_store.loop) == TDM_OK);
    TDM_ASSERT(tdm__store_memory_open(cluster_store.loop, &cluster_store.memory) == TDM_OK);
    (void)tdm__loop_run(cluster_store.loop, is_ending, NULL, TDM__NEVER);
    while (!LIST_EMPTY(&cluster_store.connections)) {
        connection_free(LIST_FIRST(&cluster_store.connections));
    }
    cluster_store.memory->ops->close(cluster_store.memory);
    tdm__loop_destroy(cluster_store.loop);
}

static void on_store_killed(void *arg)
{
    (void)arg; /* The store is never killed. */
}

static bool is_open(void *arg)
{
    (void)arg;
    return cluster_store.memory != NULL;
}

static bool has_ended(void *arg)
{
    (void)arg;
    return sim_process_has_ended(cluster_store.process);
}

void cluster_store_begin(void)
{
    memset(&cluster_store, 0, sizeof(cluster_store));
    store_rules_begin();
    LIST_INIT(&cluster_store.connections);
    LIST_INIT(&cluster_store.clients);
    cluster_store.process = sim_process_create("store", store_main, on_store_killed, NULL);
    TDM_ASSERT(sim_run(is_open, NULL) == SIM_DONE);
}

void cluster_store_end(void)
{
    TDM_ASSERT(LIST_EMPTY(&cluster_store.clients));
    cluster_store.is_ending = true;
    TDM_ASSERT(sim_run(has_ended, NULL) == SIM_DONE);
}
