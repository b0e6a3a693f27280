/* forwarded_test.c - a store behind another daemon works like one at hand. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/forwarded.h"

#include "runtime/clock.h"
#include "runtime/redis/forward_service.h"
#include "runtime/redis/store.h"
#include "tests/support/redis_fixture.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 10000, STORE_MS = 5000 };

/* A head with an embedded Redis server, and a member that reaches the server through the head. */
static struct {
    struct redis_fixture redis;
    struct tdm__services services;
    struct tdm__rpc *head;
    struct tdm__rpc *member;
    char address[128]; /* TCP address of the head. */
    uint32_t shared;   /* Calls of the service's callback. */
} scene;

/* Mode of TLS of all endpoints of the present test. */
static enum tdm__tls_mode tls_mode;

static void on_shared(void *arg)
{
    (void)arg;
    scene.shared++;
}

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    (void)arg;
    tdm__services_serve(&scene.services, incoming);
}

static struct tdm__rpc *make_endpoint(const uint8_t token[TDM__TOKEN_BYTES])
{
    struct tdm__peer_identity self = pair_identity("daemon");
    struct tdm__rpc *rpc = NULL;

    self.kind = TDM__PEER_DAEMON;
    assert_int_equal(tdm__rpc_create(scene.redis.base.loop, &self, token, &rpc), TDM_OK);
    tdm__rpc_set_tcp_settings(rpc, &(struct tdm__tcp_settings){.tls_mode = tls_mode});
    return rpc;
}

static void listen_as_head(void)
{
    const struct tdm__redis_forward_options options = {.loop = scene.redis.base.loop,
                                                       .server = scene.redis.server,
                                                       .cluster = "test",
                                                       .shared = on_shared};
    void *service;

    scene.head = make_endpoint(pair_token);
    assert_int_equal(tdm__redis_forward_create(&options, &service), TDM_OK);
    tdm__services_add(&scene.services, &tdm__redis_forward_service, service);
    tdm__rpc_set_call_handler(scene.head, serve, NULL);
    assert_int_equal(tdm__rpc_listen(scene.head,
                                     scene.address[0] == '\0' ? "tcp:127.0.0.1:0" : scene.address,
                                     scene.address, sizeof(scene.address)),
                     TDM_OK);
}

static void stop_head(void)
{
    tdm__services_destroy(&scene.services);
    scene.services = (struct tdm__services){.services_count = 0};
    tdm__rpc_destroy(scene.head);
    scene.head = NULL;
}

static int open_scene(void **state)
{
    (void)state;
    memset(&scene, 0, sizeof(scene));
    assert_int_equal(redis_fixture_open(&scene.redis), 0);
    listen_as_head();
    scene.member = make_endpoint(pair_token);
    return 0;
}

static int open_scene_with_tls(void **state)
{
    tls_mode = TDM__TLS_ON;
    return open_scene(state);
}

static int close_scene(void **state)
{
    (void)state;
    tdm__rpc_destroy(scene.member);
    if (scene.head != NULL) {
        stop_head();
    }
    redis_fixture_close(&scene.redis);
    tls_mode = TDM__TLS_AUTO;
    return 0;
}

static struct tdm__redis_forwarded *join(void)
{
    struct tdm__redis_forwarded *forwarded = NULL;

    assert_int_equal(tdm__redis_forwarded_open(scene.member, scene.address, scene.redis.directory,
                                               WAIT_MS, &forwarded),
                     TDM_OK);
    return forwarded;
}

/* The outcome of one operation of a store. */
struct outcome {
    bool done;
    tdm_status status;
    uint32_t records_count;
    size_t size_bytes; /* Of the first record's value. */
};

static void on_committed(void *arg, tdm_status status, const struct tdm__store_committed *committed)
{
    struct outcome *outcome = arg;

    (void)committed;
    *outcome = (struct outcome){.done = true, .status = status};
}

static void on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                    uint32_t records_count)
{
    struct outcome *outcome = arg;

    *outcome = (struct outcome){.done = true,
                                .status = status,
                                .records_count = records_count,
                                .size_bytes = records_count > 0 ? records[0].bytes.size_bytes : 0};
}

static bool is_done(void *arg)
{
    return ((struct outcome *)arg)->done;
}

static struct outcome finish(struct outcome *outcome)
{
    assert_int_equal(tdm__loop_run(scene.redis.base.loop, is_done, outcome,
                                   tdm__deadline_after(2 * (int64_t)WAIT_MS)),
                     TDM_OK);
    return *outcome;
}

static tdm_status put(struct tdm__store *store, const char *key, const void *value,
                      size_t size_bytes)
{
    struct outcome outcome = {.done = false};
    struct tdm__store_write write = {.kind = TDM__STORE_PUT,
                                     .key = key,
                                     .version = TDM__VERSION_ANY,
                                     .bytes = {value, size_bytes}};

    store->ops->commit(store, &write, 1, tdm__deadline_after(STORE_MS), on_committed, &outcome);
    return finish(&outcome).status;
}

static struct outcome get(struct tdm__store *store, const char *key)
{
    struct outcome outcome = {.done = false};

    store->ops->read(store, &key, 1, tdm__deadline_after(STORE_MS), on_read, &outcome);
    return finish(&outcome);
}

static struct tdm__store *open_store(const struct tdm__redis_forwarded *forwarded)
{
    struct tdm__store *store = NULL;

    assert_int_equal(
        tdm__store_redis_open(scene.redis.base.loop, tdm__redis_forwarded_url(forwarded),
                              tdm__redis_forwarded_cluster(forwarded), WAIT_MS, &store),
        TDM_OK);
    return store;
}

static void records_of_both_sides_are_the_same(void **state)
{
    struct tdm__redis_forwarded *forwarded = join();
    struct tdm__store *store = open_store(forwarded);
    const size_t size_bytes = 900 << 10;
    char *large = calloc(1, size_bytes);

    (void)state;
    assert_non_null(large);
    assert_string_equal(tdm__redis_forwarded_cluster(forwarded), "test");
    assert_true(scene.shared > 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(put(store, "large", large, size_bytes), TDM_OK);
        assert_int_equal(get(scene.redis.base.store, "large").size_bytes, size_bytes);
        assert_int_equal(get(store, "large").size_bytes, size_bytes);
    }
    assert_int_equal(put(scene.redis.base.store, "other", "x", 1), TDM_OK);
    assert_int_equal(get(store, "other").size_bytes, 1);
    free(large);
    store->ops->close(store);
    tdm__redis_forwarded_close(forwarded);
}

static void store_works_again_after_the_head_was_started_again(void **state)
{
    struct tdm__redis_forwarded *forwarded = join();
    struct tdm__store *store = open_store(forwarded);

    (void)state;
    assert_int_equal(put(store, "key", "x", 1), TDM_OK);
    stop_head();
    assert_int_equal(get(store, "key").status, TDM_E_STORE);
    listen_as_head();
    assert_int_equal(get(store, "key").size_bytes, 1);
    store->ops->close(store);
    tdm__redis_forwarded_close(forwarded);
}

static void store_works_again_after_the_server_was_killed(void **state)
{
    struct tdm__redis_forwarded *forwarded = join();
    struct tdm__store *store = open_store(forwarded);

    (void)state;
    assert_int_equal(put(store, "key", "x", 1), TDM_OK);
    assert_int_equal(kill(tdm__redis_embedded_pid(scene.redis.server), SIGKILL), 0);
    assert_int_equal(get(store, "key").size_bytes, 1);
    store->ops->close(store);
    tdm__redis_forwarded_close(forwarded);
}

/* Returns the failure of joining as a daemon with this endpoint, at this address. */
static tdm_status join_fails(struct tdm__rpc *rpc, const char *address)
{
    struct tdm__redis_forwarded *forwarded = NULL;
    tdm_status status =
        tdm__redis_forwarded_open(rpc, address, scene.redis.directory, WAIT_MS, &forwarded);

    assert_null(forwarded);
    return status;
}

static void wrong_token_and_wrong_address_are_named(void **state)
{
    const uint8_t other_token[TDM__TOKEN_BYTES] = {1};
    struct tdm__rpc *other = make_endpoint(other_token);

    (void)state;
    assert_int_not_equal(join_fails(other, scene.address), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "does not know the cluster's token"));
    assert_non_null(strstr(tdm_error_detail(), "TANDEM_TOKEN_FILE"));
    tdm__rpc_destroy(other);
    assert_int_not_equal(join_fails(scene.member, "tcp:127.0.0.1:1"), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "Connection refused"));
    assert_int_not_equal(join_fails(scene.member, "tcp:nowhere"), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "wanted tcp:host:port"));
}

static void daemon_without_a_server_is_refused(void **state)
{
    (void)state;
    tdm__services_destroy(&scene.services);
    scene.services = (struct tdm__services){.services_count = 0};
    assert_int_equal(join_fails(scene.member, scene.address), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "has no Redis server of its own"));
}

/* A client is pending while the head does not reply. */
static void closing_ends_clients_that_wait_for_the_head(void **state)
{
    struct tdm__redis_forwarded *forwarded = join();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte;

    (void)state;
    stop_head();
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/store.sock",
                   scene.redis.directory);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    (void)tdm__loop_run(scene.redis.base.loop, NULL, NULL, 0);
    tdm__redis_forwarded_close(forwarded);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    (void)close(fd);
    assert_int_not_equal(access(address.sun_path, F_OK), 0);
}

#define SCENE_TEST(test) cmocka_unit_test_setup_teardown(test, open_scene, close_scene)

#define TLS_SCENE_TEST(test)                                                                       \
    {                                                                                              \
        "tls_" #test, test, open_scene_with_tls, close_scene, NULL                                 \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(records_of_both_sides_are_the_same),
        SCENE_TEST(store_works_again_after_the_head_was_started_again),
        SCENE_TEST(store_works_again_after_the_server_was_killed),
        SCENE_TEST(wrong_token_and_wrong_address_are_named),
        TLS_SCENE_TEST(records_of_both_sides_are_the_same),
        TLS_SCENE_TEST(store_works_again_after_the_head_was_started_again),
        TLS_SCENE_TEST(wrong_token_and_wrong_address_are_named),
        SCENE_TEST(daemon_without_a_server_is_refused),
        SCENE_TEST(closing_ends_clients_that_wait_for_the_head),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
