/* reference_fuzz.c - any bytes as a reference or a handle, alone or inside a value, are refused, or
 * opened, encoded and released. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/actor_handle.h"
#include "actors/objects/objects.h"
#include "actors/objects/pins.h"
#include "actors/objects/ref_table.h"
#include "actors/runtime_create.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/rpc/internal.h"
#include "runtime/wire/writer.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

/* Creates a runtime without connections: all owners count as lost. */
static tdm_runtime *runtime_create(void)
{
    static const uint8_t token[TDM__TOKEN_BYTES] = {1};
    struct tdm__peer_identity self = {.kind = TDM__PEER_DRIVER, .pid = 1, .name = "fuzz"};
    tdm_runtime *runtime;

    memset(self.id.bytes, 1, sizeof(self.id.bytes));
    TDM_ASSERT(tdm__runtime_create(&self, token, &runtime) == TDM_OK);
    (void)snprintf(runtime->directory, sizeof(runtime->directory), "/nowhere");
    runtime->rpc->closing = true;
    tdm__runtime_set_current(runtime);
    return runtime;
}

static void open_bare(tdm_runtime *runtime, struct tdm_bytes bytes)
{
    tdm_actor *actor;
    tdm_writer *writer;
    tdm_ref *ref;

    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    if (tdm__reference_open(runtime, bytes, &ref) == TDM_OK) {
        if (ref->shared != NULL) {
            TDM_ASSERT(tdm__reference_write(writer, ref) == TDM_OK);
        }
        tdm_ref_release(ref);
    }
    if (tdm__handle_bytes_keep_alive(runtime, bytes, &ref) == TDM_OK) {
        tdm_ref_release(ref);
    }
    if (tdm__handle_open(runtime, bytes, &actor) == TDM_OK) {
        tdm_actor_destroy(actor);
    }
    tdm_writer_destroy(writer);
}

static void open_inside(tdm_runtime *runtime, struct tdm_bytes bytes)
{
    struct tdm__pins holds = {0};
    tdm_document *document;

    if (tdm_document_parse(bytes, &document) != TDM_OK) {
        return;
    }
    if (tdm__pins_from_document(runtime, document, &holds) == TDM_OK) {
        tdm__pins_release(&holds);
    }
    TDM_ASSERT(holds.count == 0);
    tdm_document_destroy(document);
}

/* The first byte of the input selects the kind. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tdm_runtime *runtime;
    struct tdm__ref_table_counts left;

    if (runtime == NULL) {
        runtime = runtime_create();
    }
    if (size == 0) {
        return 0;
    }
    {
        TDM__LOCK(runtime);
        if (data[0] % 2 == 0) {
            open_bare(runtime, (struct tdm_bytes){data + 1, size - 1});
        } else {
            open_inside(runtime, (struct tdm_bytes){data + 1, size - 1});
        }
    }
    (void)tdm__loop_run(runtime->loop, NULL, NULL, tdm__clock_ms());
    tdm__ref_table_counts(runtime, &left);
    TDM_ASSERT(left.owned + left.borrower_pins + left.borrowed + left.reply_pins == 0);
    return 0;
}
