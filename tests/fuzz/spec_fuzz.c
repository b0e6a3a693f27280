/* spec_fuzz.c - any value is refused as an actor's spec or bootstrap, or encodes to the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/worker_bootstrap.h"
#include "runtime/assert.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static tdm_writer *written(const struct tdm__actor_spec *spec)
{
    tdm_writer *writer;

    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    tdm__actor_spec_write(writer, spec);
    TDM_ASSERT(tdm_writer_status(writer) == TDM_OK);
    return writer;
}

static void check_spec(const struct tdm__actor_spec *spec)
{
    tdm_writer *first = written(spec);
    struct tdm__actor_spec *again;
    tdm_document *document;
    tdm_writer *second;

    TDM_ASSERT(tdm_document_parse(tdm_writer_bytes(first), &document) == TDM_OK);
    TDM_ASSERT(tdm__actor_spec_read(tdm_document_root(document), &again) == TDM_OK);
    second = written(again);
    TDM_ASSERT(tdm_writer_bytes(first).size_bytes == tdm_writer_bytes(second).size_bytes);
    TDM_ASSERT(memcmp(tdm_writer_bytes(first).data, tdm_writer_bytes(second).data,
                      tdm_writer_bytes(first).size_bytes) == 0);
    tdm_writer_destroy(first);
    tdm_writer_destroy(second);
    tdm__actor_spec_destroy(again);
    tdm_document_destroy(document);
}

static void read_spec(const uint8_t *data, size_t size)
{
    struct tdm__actor_spec *spec;
    tdm_document *document;

    if (tdm_document_parse((struct tdm_bytes){data, size}, &document) != TDM_OK) {
        return;
    }
    if (tdm__actor_spec_read(tdm_document_root(document), &spec) == TDM_OK) {
        check_spec(spec);
        tdm__actor_spec_destroy(spec);
    }
    tdm_document_destroy(document);
}

static void read_bootstrap(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    struct tdm__bootstrap bootstrap;

    TDM_ASSERT(fd >= 0);
    if (write(fd, data, size) == (ssize_t)size && tdm__bootstrap_read(fd, &bootstrap) == TDM_OK) {
        check_spec(bootstrap.spec);
        tdm__actor_spec_destroy(bootstrap.spec);
    }
    (void)close(fd);
}

/* The first byte of the input selects the kind. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    if (data[0] % 2 == 0) {
        read_spec(data + 1, size - 1);
    } else {
        read_bootstrap(data + 1, size - 1);
    }
    return 0;
}
