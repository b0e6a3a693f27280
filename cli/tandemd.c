/* tandemd.c - the daemon of a node: creates the services of all layers and runs them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The process has one loop and one thread. main() reads the options, chooses the directory and
 * forks the supervisor. daemon_start() creates everything in the order of the fields of struct
 * daemon: loop, Redis, endpoint, store, services; it then joins the cluster. daemon_free() destroys
 * it in the opposite order, except that the store closes first, so that its pending operations fail
 * while their owners still exist.
 *
 * The daemon runs until SIGTERM or SIGINT, or until the process at the other end of descriptor 3
 * ends (--private). It then ends its jobs and actors and waits at most END_MS. actors/daemon
 * contains the services for actors. */

#include "actors/daemon/actor_service.h"
#include "actors/daemon/job_service.h"
#include "actors/daemon/join_check.h"
#include "actors/daemon/metrics_service.h"
#include "actors/daemon/node.h"
#include "actors/daemon/node_lease.h"
#include "actors/daemon/node_notices.h"
#include "actors/daemon/placement_group_service.h"
#include "actors/daemon/timeline_service.h"
#include "actors/objects/memory_usage.h"
#include "actors/process/started_node.h"
#include "actors/worker.h"
#include "cli/daemon_options.h"
#include "cli/daemon_token.h"
#include "cli/devices.h"
#include "cli/faulty_store.h"
#include "cli/job_port.h"
#include "cli/redis_url.h"
#include "colocate/broker/broker_service.h"
#include "colocate/comm/rendezvous_service.h"
#include "colocate/memory_arbiter_service.h"
#include "colocate/weights/version_service.h"
#include "runtime/clock.h"
#include "runtime/descriptors.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/log.h"
#include "runtime/process/command_supervisor.h"
#include "runtime/process/fence.h"
#include "runtime/process/process_tree.h"
#include "runtime/process/supervisor.h"
#include "runtime/process/supervisor_watch.h"
#include "runtime/redis/address.h"
#include "runtime/redis/embedded.h"
#include "runtime/redis/encrypted.h"
#include "runtime/redis/forward_service.h"
#include "runtime/redis/forwarded.h"
#include "runtime/redis/replicated.h"
#include "runtime/redis/store.h"
#include "runtime/store/metered.h"
#include "runtime/store/read_cache.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* Descriptor of the connection to the process that started a private daemon, or to
     * `tandem start`. */
    LIFELINE_FD = 3,
    /* Longest wait for the store while the daemon starts, in milliseconds. */
    STORE_TIMEOUT_MS = 10000,
    /* Longest wait for the end of all jobs and actors when the daemon stops, in milliseconds. */
    END_MS = 10000,
    /* Longest wait for the other nodes of the cluster before this node joins, in milliseconds. */
    JOIN_CHECK_MS = 4000,
    /* Most values in a call to the daemon. A nil takes a byte of the call and 24 bytes when it is
     * parsed, so that a call of 16 MB could otherwise take 390 MB. */
    CALL_VALUES_MAX = 1 << 19
};

/* The whole state of the daemon. daemon_start() creates it in the order of the fields. */
struct daemon {
    struct cli_daemon_options options; /* Options from the daemon's command line and environment. */
    /* Page by which the supervisor learns what to kill when the lease ends (never freed). */
    struct tdm__fence *fence;
    char directory[PATH_MAX]; /* Absolute path of the daemon's directory. */
    struct tdm__loop *loop;   /* Event loop of the daemon's only thread (owned). */
    /* Embedded Redis server (owned); NULL if the options name another server. */
    struct tdm__redis_embedded *redis;
    struct tdm__rpc *rpc; /* Endpoint that accepts connections and calls (owned). */
    /* Redis server of the head node (owned); NULL without --join. */
    struct tdm__redis_forwarded *forwarded;
    /* Redis server that is reached by TLS (owned); NULL without a rediss:// URL. */
    struct tdm__redis_encrypted *encrypted;
    /* Store that the faulty store uses (owned); NULL without --store-faults. */
    struct tdm__store *real_store;
    struct tdm__store *store; /* Store that the services use (owned). */
    /* Cache of records that were read from the store (owned). */
    struct tdm__read_cache *read_cache;
    struct tdm__services services; /* Services that handle incoming calls. */
    struct tdm__node node;         /* State of the node that this daemon runs. */
    int signals;                   /* Descriptor (signalfd) that reports SIGTERM and SIGINT. */
    struct tdm__fd_watch *signals_watch; /* The loop's watch on `signals` (owned). */
    /* Notices that the supervisor, this process's parent, is stopped (owned). */
    struct tdm__supervisor_watch *supervisor_watch;
    /* Whether the attempt to join the cluster has completed. */
    bool joined;
    bool stop_wanted;       /* Whether a signal has told the daemon to end. */
    bool actors_ended;      /* Whether all actors of the node have ended. */
    bool has_left;          /* Whether the attempt to leave the cluster has completed. */
    tdm_status join_status; /* Outcome of joining the cluster; valid once `joined` is true. */
    char join_detail[512];  /* Error text if joining the cluster failed. */
};

/* The only daemon of this process. */
static struct daemon this_daemon;

/* ---- connections ------------------------------------------------------------------------ */

/* Passes an incoming call to the service that handles its method. */
static void daemon_serve(void *arg, struct tdm__incoming_call *incoming)
{
    struct daemon *daemon = arg;

    tdm__node_serve(&daemon->node, incoming);
}

/* A local driver whose process is watched, because a child that it forked may keep its connection
 * open. */
struct driver {
    struct tdm__conn *conn;      /* Connection between the driver and this daemon (borrowed). */
    int pidfd;                   /* Pidfd of the driver's process (owned). */
    struct tdm__fd_watch *watch; /* The loop's watch on `pidfd` (owned). */
};

/* Stops watching a driver's process and frees `driver`. */
static void driver_free(struct driver *driver)
{
    tdm__fd_watch_destroy(driver->watch);
    (void)close(driver->pidfd);
    free(driver);
}

/* Closes the connection of a driver that has ended. */
static void on_driver_ended(void *arg, int fd, unsigned ready)
{
    struct driver *driver = arg;

    (void)fd;
    (void)ready;
    /* The connection's end runs on_closed(), which frees `driver`. */
    tdm__conn_close(driver->conn);
    (void)tdm__fd_watch_set_events(driver->watch, 0);
}

/* Handles the end of a connection to this daemon. */
static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct daemon *daemon = arg;
    struct driver *driver = tdm__conn_user_data(conn);

    (void)reason;
    (void)detail;
    if (driver != NULL) {
        driver_free(driver);
    }
    tdm__node_peer_closed(&daemon->node, tdm__conn_peer(conn));
}

/* Watches the process of a driver. If the process cannot be watched, only the end of the connection
 * shows that the driver has ended. */
static void watch_driver(struct daemon *daemon, struct tdm__conn *conn)
{
    struct driver *driver = calloc(1, sizeof(*driver));

    if (driver == NULL) {
        return;
    }
    *driver = (struct driver){.conn = conn, .pidfd = tdm__conn_peer_pidfd(conn)};
    if (driver->pidfd < 0 ||
        tdm__fd_watch_create(daemon->loop, driver->pidfd, TDM__READABLE, on_driver_ended, driver,
                             &driver->watch) != TDM_OK) {
        driver->watch = NULL;
        driver_free(driver);
        return;
    }
    tdm__conn_set_user_data(conn, driver);
}

/* Handles a new connection to this daemon. */
static void on_accepted(void *arg, struct tdm__conn *conn)
{
    struct daemon *daemon = arg;

    tdm__conn_on_closed(conn, on_closed, arg);
    if (tdm__conn_peer(conn)->kind == TDM__PEER_DRIVER) {
        watch_driver(arg, conn);
        tdm__node_notices_greet(&daemon->node, conn);
    }
}

/* ---- start ------------------------------------------------------------------------------ */

/* Returns the process ID of the embedded Redis server, or 0 if absent. */
static pid_t redis_pid(void)
{
    return this_daemon.redis == NULL ? 0 : tdm__redis_embedded_pid(this_daemon.redis);
}

/* Starts the embedded Redis server, unless the options name another server. */
static tdm_status daemon_start_redis(struct daemon *daemon)
{
    return daemon->options.redis_url != NULL || daemon->options.join_address != NULL
               ? TDM_OK
               : tdm__redis_embedded_start(daemon->loop, daemon->directory, &daemon->redis);
}

/* Callback that runs at each new connection with the Redis server. */
static void on_store_connected(void *arg)
{
    tdm__node_lease_check(arg);
}

/* Opens the store in the Redis server at `url`. */
static tdm_status daemon_open_redis_at(struct daemon *daemon, const char *url)
{
    const char *risk = cli_redis_url_risk(url, daemon->options.wait_replicas);
    struct tdm__redis_address address;

    TDM_TRY(tdm__redis_address_parse(url, &address));
    if (risk != NULL) {
        tdm__log(TDM__WARN, "redis", "%s", risk);
    }
    address.allows_remote_master = daemon->options.insecure_redis;
    if (address.is_encrypted) {
        const struct tdm__redis_address server = address;

        TDM_TRY(tdm__redis_encrypted_open(daemon->loop, &server, daemon->directory, &address,
                                          &daemon->encrypted));
    }
    return tdm__store_redis_open_at(daemon->loop, &address, daemon->options.cluster,
                                    STORE_TIMEOUT_MS, &daemon->store);
}

/* Opens the store in the Redis server of the head node, the one of the options, or the embedded
 * one. */
static tdm_status daemon_open_redis(struct daemon *daemon)
{
    const char *url = daemon->options.redis_url;
    char address[TDM__ADDRESS_BYTES];

    if (daemon->redis != NULL) {
        url = tdm__redis_embedded_url(daemon->redis);
    }
    if (daemon->options.join_address != NULL) {
        (void)snprintf(address, sizeof(address), "tcp:%s", daemon->options.join_address);
        TDM_TRY(tdm__redis_forwarded_open(daemon->rpc, address, daemon->directory, STORE_TIMEOUT_MS,
                                          &daemon->forwarded));
        url = tdm__redis_forwarded_url(daemon->forwarded);
        daemon->options.cluster = tdm__redis_forwarded_cluster(daemon->forwarded);
    }
    TDM_TRY(daemon_open_redis_at(daemon, url));
    tdm__store_redis_set_writer(daemon->store, &daemon->node.record.id);
    tdm__store_redis_on_connected(daemon->store, on_store_connected, &daemon->node);
    return daemon->options.wait_replicas == 0
               ? TDM_OK
               : tdm__store_replicated_open(daemon->store, daemon->options.wait_replicas,
                                            &daemon->store);
}

/* Opens the store of the cluster's records with its wrappers: faults if requested, metrics, and the
 * read cache. */
static tdm_status daemon_open_store(struct daemon *daemon)
{
    TDM_TRY(daemon_open_redis(daemon));
    if (daemon->options.fault_one_in > 0) {
        daemon->real_store = daemon->store;
        TDM_TRY(tdm__store_faulty_open(daemon->loop, daemon->real_store, daemon->options.fault_seed,
                                       daemon->options.fault_one_in, &daemon->store));
    }
    TDM_TRY(tdm__store_metered_open(daemon->store, &daemon->store));
    TDM_TRY(tdm__read_cache_create(&daemon->read_cache));
    daemon->store->read_cache = daemon->read_cache;
    return TDM_OK;
}

/* Makes the daemon listen for submitted jobs on TCP, if requested. */
static tdm_status daemon_listen_for_jobs(const struct daemon *daemon)
{
    tdm_status status =
        daemon->options.job_address == NULL
            ? TDM_OK
            : cli_job_port_listen(daemon->rpc, daemon->options.job_address, daemon->directory);

    if (status != TDM_OK && daemon->options.job_optional) {
        tdm__log(TDM__WARN, "jobs", "jobs reach this node only without --address: %s",
                 tdm_error_detail());
        return TDM_OK;
    }
    return status;
}

/* Makes the daemon listen on its Unix socket, and on TCP if requested. */
static tdm_status daemon_listen(struct daemon *daemon)
{
    struct tdm__node *node = &daemon->node;
    char address[TDM__ADDRESS_BYTES + 32];

    (void)snprintf(address, sizeof(address), "unix:%s/tandemd.sock", daemon->directory);
    TDM_TRY(tdm__rpc_listen(daemon->rpc, address, node->record.unix_address,
                            sizeof(node->record.unix_address)));
    if (daemon->options.listen_host == NULL) {
        return TDM_OK;
    }
    (void)snprintf(node->listen_host, sizeof(node->listen_host), "%s", daemon->options.listen_host);
    (void)snprintf(address, sizeof(address), "tcp:%s:%u", daemon->options.listen_host,
                   daemon->options.port);
    return tdm__rpc_listen(daemon->rpc, address, node->record.tcp_address,
                           sizeof(node->record.tcp_address));
}

/* Creates the daemon's endpoint for connections and the node's identity. The endpoint does not
 * listen yet. */
static tdm_status daemon_create_endpoint(struct daemon *daemon)
{
    struct tdm__node *node = &daemon->node;
    struct tdm__peer_identity self = {.kind = TDM__PEER_DAEMON, .pid = getpid()};

    TDM_TRY(tdm__id_generate(&node->record.id));
    self.id = node->record.id;
    self.node = node->record.id;
    (void)snprintf(self.name, sizeof(self.name), "tandemd on %.50s", node->record.name);
    TDM_TRY(tdm__rpc_create(daemon->loop, &self, node->token, &daemon->rpc));
    tdm__rpc_set_tcp_settings(daemon->rpc, &daemon->options.tcp);
    tdm__rpc_set_call_handler(daemon->rpc, daemon_serve, daemon);
    tdm__rpc_set_values_max(daemon->rpc, CALL_VALUES_MAX);
    tdm__rpc_on_accepted(daemon->rpc, on_accepted, daemon);
    return TDM_OK;
}

/* Callback that runs when another node is about to use the embedded Redis server. */
static void on_store_shared(void *arg)
{
    struct daemon *daemon = arg;

    tdm__node_store_shared(&daemon->node);
}

/* Creates the service by which other nodes reach the embedded Redis server, if this daemon has one
 * and listens for other nodes. */
static tdm_status daemon_add_store_service(struct daemon *daemon)
{
    const struct tdm__redis_forward_options options = {.loop = daemon->loop,
                                                       .server = daemon->redis,
                                                       .cluster = daemon->options.cluster,
                                                       .shared = on_store_shared,
                                                       .arg = daemon};
    void *service;

    if (daemon->redis == NULL || daemon->options.listen_host == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__redis_forward_create(&options, &service));
    tdm__services_add(&daemon->services, &tdm__redis_forward_service, service);
    return TDM_OK;
}

/* Creates all services of the daemon, which then handle incoming calls. */
static tdm_status daemon_add_services(struct daemon *daemon)
{
    struct tdm__broker *broker;
    void *blocks;
    void *rendezvous;
    void *memory_arbiter;
    void *version;
    struct tdm__node_metrics *metrics;

    tdm__services_add(&daemon->services, &tdm__node_service, &daemon->node);
    tdm__services_add(&daemon->services, &tdm__actor_service, &daemon->node);
    tdm__services_add(&daemon->services, &tdm__placement_group_service, &daemon->node);
    TDM_TRY(tdm__broker_create(daemon->options.gpus, daemon->options.gpu_bytes, &broker));
    TDM_TRY(tdm__broker_service_create(daemon->loop, broker, &blocks));
    tdm__services_add(&daemon->services, &tdm__broker_service, blocks);
    TDM_TRY(tdm__rendezvous_service_create(&daemon->node, &rendezvous));
    tdm__services_add(&daemon->services, &tdm__rendezvous_service, rendezvous);
    TDM_TRY(tdm__arbiter_service_create(daemon->loop, broker, &memory_arbiter));
    tdm__services_add(&daemon->services, &tdm__arbiter_service, memory_arbiter);
    TDM_TRY(tdm__version_service_create(daemon->loop, daemon->store, &version));
    tdm__services_add(&daemon->services, &tdm__version_service, version);
    TDM_TRY(tdm__node_metrics_create(&daemon->node, daemon->options.metrics_address, &metrics));
    tdm__services_add(&daemon->services, &tdm__metrics_service, metrics);
    tdm__services_add(&daemon->services, &tdm__timeline_service, &daemon->node);
    return daemon_add_store_service(daemon);
}

/* Fills in the node's record and resources from the options. */
static tdm_status daemon_describe_node(struct daemon *daemon)
{
    struct tdm__node *node = &daemon->node;
    struct tdm__resources totals = daemon->options.resources;
    ssize_t length;

    TDM_TRY(tdm__resources_add(&totals, "CPU", daemon->options.cpus));
    TDM_TRY(tdm__resources_add(&totals, "GPU", daemon->options.gpus));
    TDM_TRY(tdm__resources_add(&totals, "memory", (double)daemon->options.memory_bytes));
    node->totals.labels = daemon->options.labels;
    node->health_timeout_ms = daemon->options.health_timeout_ms;
    node->unreachable_ms = daemon->options.unreachable_ms;
    TDM_TRY(tdm__pool_init(&node->totals.pool, &totals));
    (void)snprintf(node->record.name, sizeof(node->record.name), "%s", daemon->options.name);
    (void)snprintf(node->totals.name, sizeof(node->totals.name), "%s", daemon->options.name);
    if (strlen(daemon->directory) >= sizeof(node->directory)) {
        return tdm__fail(TDM_E_LIMIT,
                         "starting the daemon failed: the path of directory %s has %zu bytes, at "
                         "most %zu. Choose a shorter --directory",
                         daemon->directory, strlen(daemon->directory), sizeof(node->directory) - 1);
    }
    (void)snprintf(node->directory, sizeof(node->directory), "%s", daemon->directory);
    TDM_TRY(tdm__memory_usage_create_file(node->directory, daemon->options.object_store_bytes));
    length = readlink("/proc/self/exe", node->worker_program, sizeof(node->worker_program) - 1);
    if (length < 0) {
        return tdm__fail_errno(errno, "readlink /proc/self/exe");
    }
    node->record.pid = getpid();
    node->loop = daemon->loop;
    node->services = &daemon->services;
    node->exempt_child = redis_pid;
    node->fence = daemon->fence;
    node->record.lease_ms = daemon->options.lease_ms;
    node->visible_devices_variable = daemon->options.visible_devices_variable;
    node->print_logs = daemon->options.print_logs;
    return TDM_OK;
}

/* Callback that stores the outcome of joining the cluster. */
static void on_joined(void *arg, tdm_status status, const char *detail)
{
    struct daemon *daemon = arg;

    daemon->joined = true;
    daemon->join_status = status;
    (void)snprintf(daemon->join_detail, sizeof(daemon->join_detail), "%s", detail);
}

/* Condition for the loop: whether the attempt to join the cluster has completed. */
static bool has_joined(void *arg)
{
    const struct daemon *daemon = arg;

    return daemon->joined;
}

/* Joins the cluster and blocks until the outcome is known. On failure the node may have joined. */
static tdm_status daemon_join(struct daemon *daemon)
{
    struct tdm__node *node = &daemon->node;
    uint64_t newest_epoch;

    node->rpc = daemon->rpc;
    node->store = daemon->store;
    node->owns_store = daemon->redis != NULL;
    node->totals.id = node->record.id;
    TDM_TRY(tdm__join_check(node, STORE_TIMEOUT_MS, JOIN_CHECK_MS, &newest_epoch));
    tdm__failpoint_hit("node.checked");
    TDM_TRY(tdm__node_start(node, on_joined, daemon));
    TDM_TRY(tdm__loop_run(daemon->loop, has_joined, daemon, tdm__deadline_after(STORE_TIMEOUT_MS)));
    if (daemon->join_status != TDM_OK) {
        return tdm__fail(daemon->join_status, "joining the cluster failed: %s",
                         daemon->join_detail);
    }
    return tdm__join_check_again(node, STORE_TIMEOUT_MS, JOIN_CHECK_MS, newest_epoch);
}

/* Handles SIGTERM and SIGINT. */
static void on_signal(void *arg, int fd, unsigned ready)
{
    struct daemon *daemon = arg;
    struct signalfd_siginfo info;

    (void)ready;
    if (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        daemon->stop_wanted = true;
    }
}

/* Blocks SIGTERM and SIGINT and watches a descriptor that reports them. */
static tdm_status daemon_watch_signals(struct daemon *daemon)
{
    sigset_t watched;

    (void)sigemptyset(&watched);
    (void)sigaddset(&watched, SIGTERM);
    (void)sigaddset(&watched, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &watched, NULL);
    daemon->signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (daemon->signals < 0) {
        return tdm__fail_errno(errno, "signalfd");
    }
    return tdm__fd_watch_create(daemon->loop, daemon->signals, TDM__READABLE, on_signal, daemon,
                                &daemon->signals_watch);
}

/* Writes the address of the cluster's head node to a file in the directory of a daemon that
 * `tandem start` started. */
static tdm_status daemon_write_cluster_address(const struct daemon *daemon)
{
    const struct cli_daemon_options *options = &daemon->options;
    bool is_head = options->join_address == NULL;
    const char *own = daemon->node.record.tcp_address;

    if (!options->is_started || options->listen_host == NULL) {
        return TDM_OK;
    }
    return tdm__started_node_write(daemon->directory, is_head,
                                   is_head ? own + strlen("tcp:") : options->join_address);
}

/* Creates all parts of the daemon and joins the cluster. On failure the caller calls
 * daemon_free(). */
static tdm_status daemon_start(struct daemon *daemon)
{
    tdm__process_tree_adopt_orphans();
    TDM_TRY(tdm__loop_create(&daemon->loop));
    TDM_TRY(daemon_watch_signals(daemon));
    TDM_TRY(tdm__supervisor_watch_create(daemon->loop, getppid(), &daemon->supervisor_watch));
    TDM_TRY(daemon_describe_node(daemon));
    TDM_TRY(daemon_start_redis(daemon));
    /* The token comes first, so that a missing token is reported without a wait for the store. */
    TDM_TRY(cli_daemon_token_get(&daemon->options, daemon->directory, daemon->node.token));
    TDM_TRY(daemon_create_endpoint(daemon));
    TDM_TRY(daemon_open_store(daemon));
    TDM_TRY(daemon_listen(daemon));
    TDM_TRY(daemon_listen_for_jobs(daemon));
    TDM_TRY(daemon_add_services(daemon));
    TDM_TRY(daemon_join(daemon));
    return daemon_write_cluster_address(daemon);
}

/* ---- end -------------------------------------------------------------------------------- */

/* Callback that records that all actors have ended. */
static void on_actors_ended(void *arg)
{
    struct daemon *daemon = arg;

    daemon->actors_ended = true;
}

/* Condition for the loop: whether the daemon must end. */
static bool stop_is_wanted(void *arg)
{
    const struct daemon *daemon = arg;

    return daemon->stop_wanted;
}

/* Condition for the loop: whether all jobs and actors have ended and no placement group is being
 * removed. */
static bool all_has_ended(void *arg)
{
    const struct daemon *daemon = arg;

    return daemon->actors_ended && !tdm__placement_groups_are_going(&daemon->node) &&
           !tdm__jobs_are_running(daemon->node.jobs);
}

/* Callback that records that the attempt to leave the cluster has completed. */
static void on_left(void *arg, tdm_status status, const char *detail)
{
    struct daemon *daemon = arg;

    daemon->has_left = true;
    if (status != TDM_OK) {
        tdm__log(TDM__INFO, "node", "the other nodes wait for the end of this node's lease: %s",
                 detail);
    }
}

/* Condition for the loop: whether the attempt to leave the cluster has completed. */
static bool has_left(void *arg)
{
    const struct daemon *daemon = arg;

    return daemon->has_left;
}

/* Stops all jobs and ends all actors, and waits until they have ended, at most END_MS. A node
 * without actors then leaves the cluster; what else it has in the store ends with its lease. */
static void daemon_stop_gracefully(struct daemon *daemon)
{
    tdm__jobs_stop_all(daemon->node.jobs);
    tdm__node_end_actors(&daemon->node, on_actors_ended, daemon);
    if (tdm__loop_run(daemon->loop, all_has_ended, daemon, tdm__deadline_after(END_MS)) == TDM_OK &&
        tdm__node_leave(&daemon->node, on_left, daemon) == TDM_OK) {
        (void)tdm__loop_run(daemon->loop, has_left, daemon, tdm__deadline_after(END_MS));
    }
}

/* Destroys all parts of the daemon. The store closes first, so that its pending operations fail
 * while their owners still exist. */
static void daemon_free(struct daemon *daemon)
{
    daemon->node.stopping = true;
    if (daemon->store != NULL) {
        daemon->store->ops->close(daemon->store);
        daemon->node.store = NULL;
    }
    if (daemon->real_store != NULL) {
        daemon->real_store->ops->close(daemon->real_store);
    }
    tdm__read_cache_destroy(daemon->read_cache);
    tdm__node_stop(&daemon->node);
    tdm__services_destroy(&daemon->services);
    tdm__redis_forwarded_close(daemon->forwarded);
    tdm__redis_encrypted_close(daemon->encrypted);
    if (daemon->rpc != NULL) {
        tdm__rpc_destroy(daemon->rpc);
    }
    tdm__redis_embedded_stop(daemon->redis);
    tdm__fd_watch_destroy(daemon->signals_watch);
    tdm__supervisor_watch_destroy(daemon->supervisor_watch);
    if (daemon->loop != NULL) {
        tdm__loop_destroy(daemon->loop);
    }
}

/* ---- the program ------------------------------------------------------------------------ */

/* Returns whether a process waits on descriptor 3 until the daemon is ready. */
static bool daemon_has_starter(const struct daemon *daemon)
{
    return daemon->options.is_private || daemon->options.is_started;
}

/* Sends `text` to the process that started the daemon, to report that the daemon is ready or has
 * failed: on descriptor 3, or as a line on stdout. */
static void daemon_announce(const struct daemon *daemon, const char *text)
{
    if (daemon_has_starter(daemon)) {
        (void)send(LIFELINE_FD, text, strlen(text), MSG_NOSIGNAL);
        (void)close(LIFELINE_FD);
    } else {
        (void)printf("%s\n", text);
        (void)fflush(stdout);
    }
}

/* Reports that the daemon could not start, with the text of the last error. */
static void daemon_report_failure(const struct daemon *daemon, tdm_status status)
{
    char text[TDM__ERROR_DETAIL_BYTES + 64];

    if (daemon_has_starter(daemon)) {
        (void)snprintf(text, sizeof(text), "failed %s: %s", tdm_strerror(status),
                       tdm_error_detail());
        daemon_announce(daemon, text);
    } else {
        (void)fprintf(stderr, "tandemd: %s\n", tdm_error_detail());
    }
}

/* Runs the daemon and returns the exit code. */
static int daemon_run(struct daemon *daemon)
{
    char text[TDM__ERROR_DETAIL_BYTES + 16];
    tdm_status status = daemon_start(daemon);

    if (status != TDM_OK) {
        daemon_report_failure(daemon, status);
        if (daemon->joined && daemon->join_status == TDM_OK) {
            daemon_stop_gracefully(daemon);
        }
        daemon_free(daemon);
        return 1;
    }
    (void)snprintf(text, sizeof(text), "ready %d %s", (int)getpid(),
                   daemon->node.record.unix_address);
    daemon_announce(daemon, text);
    (void)tdm__loop_run(daemon->loop, stop_is_wanted, daemon, TDM__NEVER);
    daemon_stop_gracefully(daemon);
    daemon_free(daemon);
    return 0;
}

/* Chooses the daemon's directory and locks it for as long as the daemon or its supervisor runs.
 * Removes what daemons that have ended left. */
static tdm_status choose_directory(struct daemon *daemon)
{
    /* Descriptor of the lock file. It is never closed, since it holds the lock. */
    int lock;

    tdm__directory_remove_abandoned();
    if (daemon->options.directory == NULL) {
        return tdm__directory_create_locked(daemon->directory, sizeof(daemon->directory), &lock);
    }
    TDM_TRY(tdm__directory_create_at(daemon->options.directory));
    if (realpath(daemon->options.directory, daemon->directory) == NULL) {
        return tdm__fail_errno(errno, "starting the daemon failed: realpath %s",
                               daemon->options.directory);
    }
    TDM_TRY(tdm__directory_lock(daemon->directory, &lock));
    tdm__directory_clear_leftovers(daemon->directory);
    return TDM_OK;
}

/* Sets an environment variable of this process and of all processes that it starts. */
static tdm_status set_variable(const char *name, const char *value)
{
    int set = setenv(name, value, 1); /* NOLINT(concurrency-mt-unsafe) one thread */

    return set < 0 ? tdm__fail_errno(errno, "setenv") : TDM_OK;
}

/* Sets the environment variable that names the daemon's directory, by which a later daemon finds
 * the processes that outlived this daemon. Empties TANDEM_REDIS, so that these processes do not
 * learn the password of the Redis server. */
static tdm_status prepare_environment(const char *directory)
{
    TDM_TRY(set_variable("TANDEM_REDIS", ""));
    return set_variable(TDM__DIRECTORY_VARIABLE, directory);
}

int main(int argc, char **argv)
{
    struct tdm__supervisor_options supervisor = {.lifeline = -1};
    struct daemon *daemon = &this_daemon;
    tdm_status status;

    /* These calls do not return if the process is a worker, or supervises a submitted job. */
    tdm__worker_run_if_one();
    tdm__command_supervisor_run_if_one(argc, argv);
    if (!cli_daemon_options_read(argc, argv, &daemon->options)) {
        return 2;
    }
    tdm__log_init("tandemd");
    tdm__descriptors_raise_limit(); /* The workers inherit the limit. */
    tdm__failpoint_set_process("daemon");
    status = choose_directory(daemon);
    if (daemon->options.is_started) {
        (void)setsid(); /* A signal from the terminal of `tandem start` must not end the daemon. */
    }
    if (status == TDM_OK) {
        status = tdm__fence_create(&daemon->fence);
    }
    if (status == TDM_OK) {
        supervisor.fence = daemon->fence;
        supervisor.lifeline = daemon->options.is_private ? LIFELINE_FD : -1;
        supervisor.directory = daemon->directory;
        supervisor.remove_directory = daemon->options.directory == NULL;
        status = tdm__supervisor_fork(&supervisor);
    }
    if (status == TDM_OK) {
        status = prepare_environment(daemon->directory);
    }
    if (status == TDM_OK) {
        status = cli_devices_prepare(&daemon->options);
    }
    if (status != TDM_OK) {
        daemon_report_failure(daemon, status);
        return 1;
    }
    return daemon_run(daemon);
}
