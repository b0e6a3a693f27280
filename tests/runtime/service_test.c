/* service_test.c - calls go to the service of their prefix, and all services hear of exits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/service.h"

#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__services services;
static char trace[64]; /* One letter for each event. */

static void note(void *self, char what)
{
    const char pair_of_letters[] = {what, *(const char *)self, '\0'};

    assert_true(strlen(trace) + sizeof(pair_of_letters) <= sizeof(trace));
    (void)snprintf(trace + strlen(trace), sizeof(trace) - strlen(trace), "%s", pair_of_letters);
}

static void serve(void *self, struct tdm__incoming_call *incoming)
{
    note(self, 's');
    tdm__incoming_reply_pack(incoming, "");
}

static void peer_exited(void *self, const struct tdm__peer_identity *peer)
{
    assert_string_equal(peer->name, "gone");
    note(self, 'g');
}

static void peer_tree_ended(void *self, const struct tdm__peer_identity *peer)
{
    assert_string_equal(peer->name, "gone");
    note(self, 't');
}

static void destroy(void *self)
{
    note(self, 'd');
}

static const struct tdm__service_ops first = {
    .prefix = "block", .serve = serve, .peer_exited = peer_exited, .destroy = destroy};
static const struct tdm__service_ops second = {
    .prefix = "blocks", .serve = serve, .peer_tree_ended = peer_tree_ended};
static const struct tdm__service_ops third = {
    .prefix = "gpu", .serve = serve, .peer_exited = peer_exited, .destroy = destroy};

static int set_up(void **state)
{
    (void)state;
    memset(&services, 0, sizeof(services));
    trace[0] = '\0';
    tdm__services_add(&services, &first, "1");
    tdm__services_add(&services, &second, "2");
    tdm__services_add(&services, &third, "3");
    return 0;
}

static void serve_all(void *arg, struct tdm__incoming_call *incoming)
{
    tdm__services_serve(arg, incoming);
}

static tdm_status call(struct rpc_pair *pair, const char *method)
{
    struct tdm__rpc_request request = pair_request(method, "x");

    return tdm__conn_call_wait(pair->conns[0], &request, NULL, NULL, NULL);
}

static void call_goes_to_the_service_of_its_prefix(void **state)
{
    static struct rpc_pair pair;

    (void)state;
    pair_create(&pair);
    pair_join(&pair);
    tdm__rpc_set_call_handler(pair.rpcs[1], serve_all, &services);
    assert_int_equal(call(&pair, "blocks.list"), TDM_OK);
    assert_int_equal(call(&pair, "block.create"), TDM_OK);
    assert_int_equal(call(&pair, "gpu.take"), TDM_OK);
    assert_string_equal(trace, "s2s1s3");
    assert_int_equal(call(&pair, "gp.take"), TDM_E_NOT_FOUND);
    assert_string_equal(tdm_error_detail(), "this process has no service for gp.take");
    assert_int_equal(call(&pair, "block"), TDM_E_NOT_FOUND);
    assert_string_equal(trace, "s2s1s3");
    pair_destroy(&pair);
}

static void the_exit_of_a_peer_is_reported_to_services_with_a_callback(void **state)
{
    struct tdm__peer_identity peer = pair_identity("gone");

    (void)state;
    tdm__services_peer_exited(&services, &peer);
    assert_string_equal(trace, "g1g3");
    tdm__services_peer_tree_ended(&services, &peer);
    assert_string_equal(trace, "g1g3t2");
}

static void services_end_in_reverse_order_once(void **state)
{
    (void)state;
    tdm__services_destroy(&services);
    tdm__services_destroy(&services);
    assert_string_equal(trace, "d3d1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(call_goes_to_the_service_of_its_prefix, set_up),
        cmocka_unit_test_setup(the_exit_of_a_peer_is_reported_to_services_with_a_callback, set_up),
        cmocka_unit_test_setup(services_end_in_reverse_order_once, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
