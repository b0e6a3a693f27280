/* forward_service_test.c - only daemons get connections to a daemon's Redis server. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/forward_service.h"

#include "runtime/messages/messages.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct rpc_pair pair;
static struct tdm__services services;

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    (void)arg;
    tdm__services_serve(&services, incoming);
}

static void ignore_shared(void *arg)
{
    (void)arg;
    fail_msg("the server is not shared");
}

/* The second endpoint has the service, without a server, so that no connection can succeed. */
static int set_up(void **state)
{
    void *service;

    (void)state;
    pair_create(&pair);
    pair_join(&pair);
    assert_int_equal(tdm__redis_forward_create(
                         &(struct tdm__redis_forward_options){
                             .loop = pair.loop, .cluster = "blue", .shared = ignore_shared},
                         &service),
                     TDM_OK);
    tdm__services_add(&services, &tdm__redis_forward_service, service);
    tdm__rpc_set_call_handler(pair.rpcs[1], serve, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__services_destroy(&services);
    services = (struct tdm__services){.services_count = 0};
    pair_destroy(&pair);
    return 0;
}

static void description_names_the_cluster(void **state)
{
    struct tdm__rpc_request request = pair_request("store.describe", "");
    struct tdm__store_description_message description;
    tdm_document *document;

    (void)state;
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, &document, NULL, NULL), TDM_OK);
    assert_int_equal(tdm__store_description_decode(tdm_document_root(document), &description),
                     TDM_OK);
    assert_string_equal(description.cluster, "blue");
    tdm_document_destroy(document);
}

static void process_that_is_no_daemon_gets_no_connection(void **state)
{
    struct tdm__rpc_request request = pair_request("store.connect", "");

    (void)state;
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_AUTH);
    assert_non_null(strstr(tdm_error_detail(), "only daemons"));
    assert_true(tdm__conn_is_open(pair.conns[0]));
}

static void unknown_method_is_refused(void **state)
{
    struct tdm__rpc_request request = pair_request("store.erase", "");

    (void)state;
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, NULL, NULL),
                     TDM_E_NOT_FOUND);
}

#define SERVICE_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_TEST(description_names_the_cluster),
        SERVICE_TEST(process_that_is_no_daemon_gets_no_connection),
        SERVICE_TEST(unknown_method_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
