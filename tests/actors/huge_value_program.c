/* huge_value_program.c - values of more than 4 GiB: put, argument, result, spilled, on one node or
 * between two.  scripts/huge-values runs it, because it needs 5 or 10 GiB of memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"
#include "tests/support/two_nodes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <tandem/tandem.h>

/* Size in bytes of the values; of the one for which the first must leave the memory; and of the
 * memory for values on the node. */
#define HUGE_BYTES   (((size_t)1 << 32) + 1)
#define SECOND_BYTES ((size_t)1 << 30)
#define STORE_BYTES  (HUGE_BYTES + (SECOND_BYTES >> 1))

/* Milliseconds for one value on a busy machine. */
enum { HUGE_TIMEOUT_MS = 300000 };

/* Returns zeros that take no memory, followed by a last byte 'z'. */
static char *zeros_open(size_t size_bytes)
{
    char *zeros = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (zeros == MAP_FAILED) {
        return NULL;
    }
    zeros[size_bytes - 1] = 'z';
    return zeros;
}

/* ---- the actor -------------------------------------------------------------------------- */

/* Method "measure": replies the number of its argument's bytes, and the last one. */
static tdm_status measurer_measure(tdm_call *call, void *self)
{
    const void *data;
    size_t size_bytes;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "b", &data, &size_bytes));
    return tdm_call_reply(call, "ui", (uint64_t)size_bytes,
                          (int64_t)((const char *)data)[size_bytes - 1]);
}

/* Method "make": replies as many bytes as asked for. */
static tdm_status measurer_make(tdm_call *call, void *self)
{
    uint64_t size_bytes;
    char *zeros;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "u", &size_bytes));
    zeros = zeros_open(size_bytes);
    if (zeros == NULL) {
        return tdm_fail(TDM_E_NOMEM, "%" PRIu64 " bytes of address space", size_bytes);
    }
    status = tdm_call_reply(call, "b", (const void *)zeros, (size_t)size_bytes);
    (void)munmap(zeros, size_bytes);
    return status;
}

TDM_ACTOR_CLASS(measurer, .methods = {{"measure", measurer_measure}, {"make", measurer_make}});

/* ---- the driver ------------------------------------------------------------------------- */

/* Reads a result of HUGE_BYTES bytes, and checks its size and its last byte. */
static tdm_status expect_huge(tdm_ref *ref, const char *what)
{
    const void *data;
    size_t size_bytes;

    TDM_TRY(tdm_get(ref, HUGE_TIMEOUT_MS, "b", &data, &size_bytes));
    if (size_bytes != HUGE_BYTES || ((const char *)data)[size_bytes - 1] != 'z') {
        return tdm_fail(TDM_E_PROTOCOL, "%s: %zu bytes, which end with %d", what, size_bytes,
                        ((const char *)data)[size_bytes - 1]);
    }
    (void)printf("%s: %zu bytes\n", what, size_bytes);
    return TDM_OK;
}

/* A huge value as an argument and as a result of the actor. */
static tdm_status exchange(tdm_actor *actor, const char *zeros)
{
    uint64_t size_bytes;
    int64_t last;
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_actor_call(actor, "measure", &ref, "b", (const void *)zeros, HUGE_BYTES));
    status = tdm_get(ref, HUGE_TIMEOUT_MS, "ui", &size_bytes, &last);
    tdm_ref_release(ref);
    TDM_TRY(status);
    (void)printf("an argument: %" PRIu64 " bytes\n", size_bytes);
    if (size_bytes != HUGE_BYTES || last != 'z') {
        return tdm_fail(TDM_E_PROTOCOL, "the argument ended with %d", (int)last);
    }
    TDM_TRY(tdm_actor_call(actor, "make", &ref, "u", (uint64_t)HUGE_BYTES));
    status = expect_huge(ref, "a result");
    tdm_ref_release(ref);
    return status;
}

/* A huge value that is put, and moved to a file and back because a second one needs its memory. */
static tdm_status put_and_spill(tdm_runtime *runtime, const char *zeros)
{
    const void *data;
    size_t size_bytes;
    tdm_ref *first;
    tdm_ref *second;
    tdm_status status;

    TDM_TRY(tdm_put(runtime, &first, "b", (const void *)zeros, HUGE_BYTES));
    status = tdm_put(runtime, &second, "b", (const void *)zeros, SECOND_BYTES);
    if (status == TDM_OK) {
        status = tdm_get(second, HUGE_TIMEOUT_MS, "b", &data, &size_bytes);
        tdm_ref_release(second);
    }
    if (status == TDM_OK) {
        status = expect_huge(first, "a value that was put and spilled");
    }
    tdm_ref_release(first);
    return status;
}

/* Runs everything with an actor that is placed as `options` say. */
static tdm_status run(tdm_runtime *runtime, const struct tdm_actor_options *options)
{
    char *zeros = zeros_open(HUGE_BYTES);
    tdm_actor *actor = NULL;
    tdm_status status = zeros == NULL ? tdm_fail(TDM_E_NOMEM, "address space") : TDM_OK;

    if (status == TDM_OK) {
        status = tdm_actor_create(runtime, "measurer", options, &actor, "");
    }
    if (status == TDM_OK) {
        status = exchange(actor, zeros);
    }
    tdm_actor_destroy(actor);
    if (status == TDM_OK && options == NULL) {
        status = put_and_spill(runtime, zeros);
    }
    if (status != TDM_OK) {
        (void)fprintf(stderr, "%s: %s\n", tdm_strerror(status), tdm_error_detail());
    }
    return status;
}

int main(int argc, char **argv)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    const struct tdm_actor_options second = {.labels = {"side=second"}};
    struct two_nodes nodes;
    tdm_runtime *runtime;
    tdm_status status = TDM_E_STATE;

    if (argc > 1 && strcmp(argv[1], "two-nodes") == 0) {
        runtime = two_nodes_join(&nodes);
        if (runtime != NULL) {
            status = run(runtime, &second);
        }
        return two_nodes_leave(&nodes, runtime) == 0 && status == TDM_OK ? 0 : 1;
    }
    options.object_store_bytes = STORE_BYTES;
    runtime = actor_fixture_open(&options);
    if (runtime != NULL) {
        status = run(runtime, NULL);
    }
    return actor_fixture_close(runtime) == 0 && status == TDM_OK ? 0 : 1;
}
