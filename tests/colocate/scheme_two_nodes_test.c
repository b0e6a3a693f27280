/* scheme_two_nodes_test.c - one receiver on the sender's node and one on another node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/update_session.h"
#include "runtime/clock.h"
#include "runtime/redis/store.h"
#include "tests/support/one_node.h"
#include "tests/support/scheme_fixture.h"
#include "tests/support/two_nodes.h"

#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <tandem/state.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

enum { SOON_MS = 20000, SCHEMES = 5 };

static struct two_nodes cluster;
static tdm_runtime *runtime; /* The driver's runtime on the first node. */

static void tried(tdm_status status, const char *what, int line)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", line, what, tdm_strerror(status), tdm_error_detail());
    }
}

static tdm_actor *pupil_on(const char *label, const char *id)
{
    const struct tdm_actor_options options = {.labels = {label}};
    tdm_actor *pupil;
    tdm_ref *ref;

    TRY(tdm_actor_create(runtime, "pupil", &options, &pupil, ""));
    TRY(tdm_actor_call(pupil, "open", &ref, "suu", id, (uint64_t)PUPIL_KEEPS, (uint64_t)0));
    TRY(scheme_end(ref, NULL));
    return pupil;
}

/* ---- the store ----------------------------------------------------------------------- */

static void on_records(void *arg, tdm_status status, const struct tdm__store_record *records,
                       uint32_t records_count)
{
    (void)records;
    assert_int_equal(status, TDM_OK);
    *(int64_t *)arg = records_count;
}

static bool is_counted(void *arg)
{
    return *(int64_t *)arg >= 0;
}

/* Returns the number of version records in the store. */
static int64_t version_records(void)
{
    static const char *const patterns[] = {"weight/*"};
    struct tdm__loop *loop = cluster.redis.base.loop;
    struct tdm__store *store;
    int64_t count = -1;

    TRY(tdm__store_redis_open(loop, tdm__redis_embedded_url(cluster.redis.server), "tandem",
                              SOON_MS, &store));
    store->ops->read(store, patterns, 1, tdm__deadline_after(SOON_MS), on_records, &count);
    TRY(tdm__loop_run(loop, is_counted, &count, tdm__deadline_after(SOON_MS)));
    store->ops->close(store);
    return count;
}

/* ---- the tests ----------------------------------------------------------------------- */

/* Both receivers serve the version, then the remote one dies. Nothing is left after the sender's
 * shutdown. */
static void send_to_both(enum tdm_weights_scheme scheme, tdm_actor *pupils[2], const char *id)
{
    struct scheme_model model;
    struct tdm_actor_info info;
    tdm_weights_sender *sender;
    tdm_ref *refs[2];
    uint64_t version;
    tdm_status status;

    scheme_model_init(&model);
    scheme_model_fill(&model, 3);
    sender = scheme_sender(runtime, id, scheme, &model, 2);
    for (int i = 0; i < 2; i++) {
        refs[i] = scheme_call(pupils[i], "connect", id);
    }
    TRY(tdm_weights_sender_connect(sender));
    for (int i = 0; i < 2; i++) {
        TRY(scheme_end(refs[i], NULL));
        TRY(scheme_check(pupils[i], id, 3, 1));
    }
    tdm_actor_describe(pupils[1], &info);
    one_node_kill_actor(pupils[1]);
    scheme_model_fill(&model, 4);
    do {
        refs[0] = scheme_receive(pupils[0], id, SOON_MS);
        status = tdm_weights_send(sender, &version);
        if (status != TDM_OK) {
            assert_int_equal(status, TDM_E_ACTOR_DIED);
            assert_non_null(strstr(tdm_error_detail(), info.id));
        }
        assert_int_equal(scheme_end(refs[0], NULL), status == TDM_OK ? TDM_OK : TDM_E_ABORTED);
    } while (status != TDM_OK);
    TRY(scheme_check(pupils[0], id, 4, version));
    assert_int_equal(version_records(), 1);
    tdm_weights_sender_shutdown(sender);
    assert_int_equal(version_records(), 0);
    scheme_model_fini(&model);
}

static void receiver_on_another_node_is_one_like_any_other(void **state)
{
    static const struct {
        enum tdm_weights_scheme scheme;
        const char *id;
    } cases[SCHEMES] = {{TDM_WEIGHTS_SHARED, "far.shared"},
                        {TDM_WEIGHTS_PROCESSES, "far.processes"},
                        {TDM_WEIGHTS_RPC, "far.rpc"},
                        {TDM_WEIGHTS_ACTORS, "far.actors"},
                        {TDM_WEIGHTS_DISTRIBUTED, "far.distributed"}};

    (void)state;
    for (int i = 0; i < SCHEMES; i++) {
        tdm_actor *pupils[2] = {pupil_on("side=first", cases[i].id),
                                pupil_on("side=second", cases[i].id)};

        send_to_both(cases[i].scheme, pupils, cases[i].id);
        tdm_actor_destroy(pupils[0]);
        tdm_actor_destroy(pupils[1]);
    }
}

/* ---- a broken connection ------------------------------------------------------------- */

enum { FDS_MAX = 256 };

static atomic_bool cut_ends;

/* Ends every TCP connection of the first daemon to a process that listens on `port`. */
static void cut_links(int daemon, uint16_t port)
{
    for (int fd = 0; fd < FDS_MAX; fd++) {
        int copy = (int)syscall(SYS_pidfd_getfd, daemon, fd, 0);
        struct sockaddr_in peer = {.sin_port = 0};
        socklen_t size = sizeof(peer);

        if (copy >= 0 && getpeername(copy, (struct sockaddr *)&peer, &size) == 0 &&
            peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) {
            (void)shutdown(copy, SHUT_RDWR);
        }
        if (copy >= 0) {
            (void)close(copy);
        }
    }
}

static void *cutter(void *arg)
{
    const uint16_t *port = arg;
    int daemon = (int)syscall(SYS_pidfd_open, cluster.first.daemon, 0);

    while (!atomic_load(&cut_ends)) {
        cut_links(daemon, *port);
    }
    (void)close(daemon);
    return NULL;
}

static uint16_t port_of_second(void)
{
    const struct tdm_node_state *nodes;
    unsigned long port = 0;
    uint32_t count;

    TRY(tdm_list_nodes(runtime, SOON_MS, &nodes, &count));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(nodes[i].name, "second") == 0) {
            port = strtoul(strrchr(nodes[i].tcp_address, ':') + 1, NULL, 10);
        }
    }
    tdm_list_free(nodes);
    return (uint16_t)port;
}

/* The remote daemon is stopped, so that the question is in progress when the connection breaks. */
static void unreachable_receiver_is_not_declared_dead(void **state)
{
    tdm_actor *pupil = pupil_on("side=second", "far.cut");
    struct tdm__member member = {.incarnation = 1};
    struct tdm_actor_info info;
    struct tdm__update_session session;
    uint16_t port = port_of_second();
    pthread_t thread;
    tdm_status status;

    (void)state;
    tdm_actor_describe(pupil, &info);
    TRY(tdm__id_parse(info.id, &member.actor));
    TRY(tdm__update_session_init(&session, runtime, "far.cut"));
    TRY(tdm__update_session_check_alive(&session, &member));
    assert_int_equal(kill(cluster.second.daemon, SIGSTOP), 0);
    assert_int_equal(pthread_create(&thread, NULL, cutter, &port), 0);
    status = tdm__update_session_check_alive(&session, &member);
    atomic_store(&cut_ends, true);
    (void)pthread_join(thread, NULL);
    assert_int_equal(kill((pid_t)info.pid, 0), 0);
    assert_int_equal(kill(cluster.second.daemon, SIGCONT), 0);
    TRY(status);
    tdm_actor_destroy(pupil);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unreachable_receiver_is_not_declared_dead),
        cmocka_unit_test(receiver_on_another_node_is_one_like_any_other),
    };
    int failed;

    runtime = two_nodes_join(&cluster);
    if (runtime == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + two_nodes_leave(&cluster, runtime);
}
