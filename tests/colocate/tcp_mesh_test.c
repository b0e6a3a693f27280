/* tcp_mesh_test.c - which ranks a mesh accepts, and what it reports about ranks that do not
 * connect. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/tcp/tcp.h"
#include "runtime/clock.h"
#include "tests/support/lost_ranks.h"
#include "tests/support/mesh_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { SOON_MS = 20000, REFUSED = 11, SAW_NO_NAME, SAW_OTHER };

static const struct tdm__id group_key = {{7}};
static const char *const nowhere[2] = {NULL, NULL};

static void missing_rank_is_named_at_the_deadline(void **state)
{
    struct tdm__mesh *mesh;

    (void)state;
    TRY(mesh_fixture_listen(0, 2, 1, mesh_fixture_token, &mesh));
    assert_int_equal(tdm__mesh_connect(mesh, &group_key, nowhere), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "rank 1 of 2 did not come in time"));
    tdm__mesh_destroy(mesh);
}

static void dead_rank_is_named_at_once(void **state)
{
    char address[64];
    const char *const addresses[2] = {address, NULL};
    struct tdm__mesh *mesh;

    (void)state;
    TRY(mesh_fixture_listen(0, 2, SOON_MS, mesh_fixture_token, &mesh));
    (void)snprintf(address, sizeof(address), "%s", tdm__mesh_address(mesh));
    tdm__mesh_destroy(mesh);
    TRY(mesh_fixture_listen(1, 2, SOON_MS, mesh_fixture_token, &mesh));
    assert_int_equal(tdm__mesh_connect(mesh, &group_key, addresses), TDM_E_ABORTED);
    assert_non_null(strstr(tdm_error_detail(), "rank 0 of 2 died"));
    tdm__mesh_destroy(mesh);
}

/* Rank 0 is dead, and rank 2 does not answer: the connection that watches it is still open. */
static void reason_is_kept_when_the_mesh_is_destroyed(void **state)
{
    char texts[3][64];
    const char *const addresses[3] = {texts[0], texts[1], texts[2]};
    struct tdm__mesh *meshes[3];

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        TRY(mesh_fixture_listen(i, 3, SOON_MS, mesh_fixture_token, &meshes[i]));
        (void)snprintf(texts[i], sizeof(texts[i]), "%s", tdm__mesh_address(meshes[i]));
    }
    tdm__mesh_destroy(meshes[0]);
    assert_int_equal(tdm__mesh_connect(meshes[1], &group_key, addresses), TDM_E_ABORTED);
    tdm__mesh_destroy(meshes[1]);
    assert_non_null(strstr(tdm_error_detail(), "rank 0 of 3 died"));
    tdm__mesh_destroy(meshes[2]);
}

/* The higher rank of two calls the lower one, which would wait for that. */
static void rank_that_died_before_connecting_is_not_awaited(void **state)
{
    int64_t begin_ms = tdm__clock_ms();
    char address[64];
    const char *const addresses[2] = {NULL, address};
    struct tdm__mesh *mesh;

    (void)state;
    TRY(mesh_fixture_listen(1, 2, SOON_MS, mesh_fixture_token, &mesh));
    (void)snprintf(address, sizeof(address), "%s", tdm__mesh_address(mesh));
    tdm__mesh_destroy(mesh);
    TRY(mesh_fixture_listen(0, 2, SOON_MS, mesh_fixture_token, &mesh));
    assert_int_equal(tdm__mesh_connect(mesh, &group_key, addresses), TDM_E_ABORTED);
    assert_non_null(strstr(tdm_error_detail(), "rank 1 of 2 died"));
    assert_true(tdm__clock_ms() - begin_ms < SOON_MS);
    tdm__mesh_destroy(mesh);
}

static void shapes_that_cannot_be_are_refused(void **state)
{
    struct tdm__mesh *mesh;
    struct tdm__comm *comm;

    (void)state;
    assert_int_equal(mesh_fixture_listen(2, 2, 1, mesh_fixture_token, &mesh), TDM_E_INVAL);
    assert_int_equal(
        mesh_fixture_listen(0, TDM_COLLECTIVE_RANKS_MAX + 1, 1, mesh_fixture_token, &mesh),
        TDM_E_INVAL);
    assert_int_equal(tdm__comm_tcp_open(NULL, 0, 1, 4, &comm), TDM_E_INVAL);
    assert_int_equal(tdm__comm_tcp_open(NULL, 0, 1, SIZE_MAX, &comm), TDM_E_INVAL);
}

/* ---- unauthenticated clients --------------------------------------------------------------- */

/* Runs a second rank of two in a child, with its own token and key. */
static pid_t start_second(const char *address, const uint8_t *token, const struct tdm__id *key)
{
    const char *const addresses[2] = {address, NULL};
    struct tdm__mesh *mesh;
    pid_t pid = fork();

    if (pid != 0) {
        return pid;
    }
    if (mesh_fixture_listen(1, 2, SOON_MS, token, &mesh) != TDM_OK) {
        _exit(SAW_OTHER);
    }
    if (tdm__mesh_connect(mesh, key, addresses) == TDM_OK) {
        tdm__mesh_destroy(mesh);
        _exit(0);
    }
    _exit(strstr(tdm_error_detail(), "rank 0 of 2") == NULL ? SAW_NO_NAME : REFUSED);
}

/* What the first rank answers to one call; packs by `format` what follows. */
static tdm_status ask(struct tdm__conn *conn, const char *method, const char *format, ...)
{
    struct tdm__rpc_request request = {.method = method,
                                       .deadline_ms = tdm__deadline_after(SOON_MS)};
    tdm_writer *writer;
    va_list args;
    tdm_status status = tdm_writer_create(&writer);

    if (status != TDM_OK) {
        return status;
    }
    va_start(args, format);
    status = tdm_pack_va(writer, format, args);
    va_end(args);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call_wait(conn, &request, NULL, NULL, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* One who knows the token and says what no member says: the number of the first that was taken
 * otherwise than it should be, or 0. */
static int talk_nonsense(const char *address)
{
    const uint8_t *key = group_key.bytes;
    size_t key_bytes = sizeof(group_key.bytes);
    struct tdm__conn *conn;
    struct tdm__rpc *rpc;
    int wrong = 0;

    if (mesh_fixture_endpoint(mesh_fixture_token, &rpc) != TDM_OK ||
        tdm__rpc_connect(rpc, address, &conn) != TDM_OK) {
        return SAW_OTHER;
    }
    if (ask(conn, "mesh.data", "uuuub", 1UL, 1UL, 0UL, 1UL, "x", (size_t)1) != TDM_E_PROTOCOL ||
        ask(conn, "mesh.end", "uis", 1UL, -1L, "because") != TDM_E_PROTOCOL ||
        ask(conn, "mesh.leave", "") != TDM_E_PROTOCOL) {
        wrong = 1; /* before it has said who it is */
    } else if (ask(conn, "mesh.hello", "s", "hello") != TDM_E_PROTOCOL ||
               ask(conn, "mesh.hello", "bu", key, key_bytes - 1, 1UL) != TDM_E_AUTH ||
               ask(conn, "mesh.hello", "bu", "0123456789abcdef", key_bytes, 1UL) != TDM_E_AUTH) {
        wrong = 2;
    } else if (ask(conn, "mesh.hello", "bu", key, key_bytes, 0UL) != TDM_E_PROTOCOL ||
               ask(conn, "mesh.hello", "bu", key, key_bytes, 2UL) != TDM_E_PROTOCOL ||
               ask(conn, "mesh.hello", "bu", key, key_bytes, UINT64_MAX) != TDM_E_PROTOCOL) {
        wrong = 3; /* ranks that are none, or the first one's own */
    }
    mesh_fixture_end(rpc);
    return wrong;
}

/* Checks that unauthenticated clients are refused, then connects as a member. */
static int keep_and_come(const char *address)
{
    static const uint8_t other_token[TDM__TOKEN_BYTES] = {9};
    static const struct tdm__id other_key = {{8}};
    int wrong;

    if (exit_code_of(start_second(address, other_token, &group_key)) != REFUSED) {
        return SAW_OTHER + 1;
    }
    if (exit_code_of(start_second(address, mesh_fixture_token, &other_key)) != REFUSED) {
        return SAW_OTHER + 2;
    }
    wrong = talk_nonsense(address);
    return wrong != 0 ? wrong : exit_code_of(start_second(address, mesh_fixture_token, &group_key));
}

static void strangers_do_not_come_in_and_members_do(void **state)
{
    struct tdm__mesh *mesh;
    pid_t keeper;

    (void)state;
    TRY(mesh_fixture_listen(0, 2, SOON_MS, mesh_fixture_token, &mesh));
    keeper = fork();
    assert_true(keeper >= 0);
    if (keeper == 0) {
        _exit(keep_and_come(tdm__mesh_address(mesh)));
    }
    TRY(tdm__mesh_connect(mesh, &group_key, nowhere));
    assert_int_equal(exit_code_of(keeper), 0);
    tdm__mesh_destroy(mesh);
}

/* ---- members that misbehave ------------------------------------------------------------- */

/* Receives nothing; the process ends soon. */
static void hold(void *arg, struct tdm__incoming_call *incoming)
{
    (void)arg;
    (void)incoming;
}

/* Connects as a member and sends a chunk of another operation. */
static int confuse(const char *address)
{
    struct tdm__conn *conn;
    struct tdm__rpc *rpc;

    if (mesh_fixture_endpoint(mesh_fixture_token, &rpc) != TDM_OK) {
        return SAW_OTHER;
    }
    tdm__rpc_set_call_handler(rpc, hold, NULL);
    if (tdm__rpc_connect(rpc, address, &conn) != TDM_OK ||
        ask(conn, "mesh.hello", "bu", group_key.bytes, sizeof(group_key.bytes), 1UL) != TDM_OK) {
        return SAW_OTHER;
    }
    return ask(conn, "mesh.data", "uuuub", 99UL, 1UL, 0UL, 1UL, "x", (size_t)1) == TDM_E_INVAL ? 0
                                                                                               : 1;
}

static void piece_of_another_call_ends_the_group(void **state)
{
    const struct tdm__collective_op call = {.kind = TDM__COLLECTIVE_BARRIER};
    struct tdm__mesh *mesh;
    pid_t pid;

    (void)state;
    TRY(mesh_fixture_listen(0, 2, SOON_MS, mesh_fixture_token, &mesh));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(confuse(tdm__mesh_address(mesh)));
    }
    TRY(tdm__mesh_connect(mesh, &group_key, nowhere));
    assert_int_equal(exit_code_of(pid), 0);
    tdm__mesh_op_begin(mesh, &call);
    assert_int_equal(tdm__mesh_send(mesh, 1, "", 0), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "rank 1 of 2 was in another call"));
    tdm__mesh_destroy(mesh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_rank_is_named_at_the_deadline),
        cmocka_unit_test(dead_rank_is_named_at_once),
        cmocka_unit_test(reason_is_kept_when_the_mesh_is_destroyed),
        cmocka_unit_test(rank_that_died_before_connecting_is_not_awaited),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
        cmocka_unit_test(strangers_do_not_come_in_and_members_do),
        cmocka_unit_test(piece_of_another_call_ends_the_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
