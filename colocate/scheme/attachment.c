/* attachment.c - bytes of the user that travel with a version. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/attachment.h"

#include "colocate/weights/checksum.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/weights.h>

/* Returns the checksum of bytes; 0 if there are none. */
static uint64_t sum_of(const void *data, size_t size_bytes)
{
    return size_bytes == 0 ? 0 : tdm__checksum_tensor(data, size_bytes);
}

tdm_status tdm__attachment_receive(struct tdm__attachment *attachment, struct tdm_bytes bytes,
                                   uint64_t sum)
{
    void *copy = NULL;

    if (bytes.size_bytes > TDM_WEIGHTS_ATTACHED_BYTES_MAX) {
        return tdm__fail(TDM_E_LIMIT,
                         "%zu bytes are attached to a version, at most %d are carried. "
                         "Send larger data as a tensor of the model",
                         bytes.size_bytes, TDM_WEIGHTS_ATTACHED_BYTES_MAX);
    }
    if (bytes.size_bytes > 0) {
        copy = malloc(bytes.size_bytes);
        if (copy == NULL) {
            return tdm__fail(TDM_E_NOMEM, "%zu bytes that are attached to a version",
                             bytes.size_bytes);
        }
        memcpy(copy, bytes.data, bytes.size_bytes);
    }
    free(attachment->data);
    *attachment = (struct tdm__attachment){copy, bytes.size_bytes, sum};
    return TDM_OK;
}

tdm_status tdm__attachment_set(struct tdm__attachment *attachment, struct tdm_bytes bytes)
{
    TDM_TRY(tdm__attachment_receive(attachment, bytes, 0));
    attachment->sum = sum_of(attachment->data, attachment->size_bytes);
    return TDM_OK;
}

tdm_status tdm__attachment_verify(const struct tdm__attachment *attachment)
{
    uint64_t found = sum_of(attachment->data, attachment->size_bytes);

    return found == attachment->sum
               ? TDM_OK
               : tdm__fail(TDM_E_CHECKSUM,
                           "the checksum of the %zu attached bytes is %016" PRIx64
                           ", the sender says %016" PRIx64,
                           attachment->size_bytes, found, attachment->sum);
}

void tdm__attachment_move(struct tdm__attachment *to, struct tdm__attachment *from)
{
    free(to->data);
    *to = *from;
    *from = (struct tdm__attachment){.data = NULL};
}

void tdm__attachment_fini(struct tdm__attachment *attachment)
{
    free(attachment->data);
    *attachment = (struct tdm__attachment){.data = NULL};
}
