/* tensor_handles.h - tensors described by where they lie: what travels instead of their bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_TENSOR_HANDLES_H
#define TDM_COLOCATE_WEIGHTS_TENSOR_HANDLES_H

#include "colocate/weights/manifest.h"
#include "runtime/id.h"

#include <stddef.h>
#include <stdint.h>

/* On the wire: one header, then storages_count storage records, then tensors_count tensor
 * records, all of fixed size, little-endian, exactly these structs; nothing before, between or
 * behind.  A storage is a piece of an allocation that its block key opens; a tensor is a
 * strided view into one storage. */

enum {
    TDM__TENSOR_HANDLES_MAGIC = 0x484d4454, /* "TDMH" */
    TDM__TENSOR_HANDLES_VERSION = 1,
    TDM__TENSOR_HANDLES_STORAGES_MAX = 1024,
    TDM__TENSOR_HANDLES_TENSORS_MAX = 1 << 18
};

struct tdm__tensor_handles_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint32_t storages_count;
    uint32_t tensors_count;
    struct tdm__id update;
    struct tdm__id node; /* where the storages are: keys mean nothing elsewhere */
    uint64_t epoch;      /* of the update, from 1 */
    uint32_t bucket;     /* 0 … buckets_count */
    uint32_t buckets_count;
};

enum { TDM__STORAGE_EVENT_SYNC = 1 }; /* wait for the event before reading */

struct tdm__storage_record {
    struct tdm__id gpu; /* its UUID */
    struct tdm__id key; /* of the allocation's block, at the node's broker */
    uint64_t size_bytes;
    uint64_t offset_bytes; /* in the allocation */
    uint64_t allocation_bytes;
    uint64_t reference; /* the exporter's counter for this export */
    uint64_t event;     /* recorded after the last write; 0: none */
    uint64_t checksum;  /* of the storage, 0: only tensors have sums */
    uint32_t flags;
    uint32_t reserved[3]; /* zero */
};

enum {
    TDM__TENSOR_REQUIRES_GRAD = 1,
    TDM__TENSOR_SLICE = 2 /* a rectangle of the tensor, and where the receiver keeps it */
};

struct tdm__tensor_record {
    uint32_t tensor;  /* index in the manifest */
    uint32_t storage; /* index of a storage record */
    uint16_t dtype;
    uint8_t dims_count;
    uint8_t flags;
    uint32_t reserved;             /* zero */
    uint64_t shape[TDM_DIMS_MAX];  /* unused: zero */
    uint64_t stride[TDM_DIMS_MAX]; /* in elements; unused: zero */
    uint64_t offset;               /* of the first element in the storage, in elements */
    uint64_t checksum;             /* of its bytes as one row, of a part as its rows (plan/sum.h) */
    uint64_t image;         /* of a part: its first byte in the receiver's weights; else zero */
    uint64_t reserved_tail; /* zero */
};

_Static_assert(sizeof(struct tdm__tensor_handles_header) == 64, "wire format");
_Static_assert(sizeof(struct tdm__storage_record) == 96, "wire format");
_Static_assert(sizeof(struct tdm__tensor_record) == 112, "wire format");
_Static_assert(offsetof(struct tdm__tensor_handles_header, epoch) == 48, "wire format");
_Static_assert(offsetof(struct tdm__storage_record, flags) == 80, "wire format");
_Static_assert(offsetof(struct tdm__tensor_record, offset) == 80, "wire format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the structs are the wire format");

struct tdm__tensor_handles {
    struct tdm__tensor_handles_header header;
    struct tdm__storage_record *storages; /* owned by whoever filled them */
    struct tdm__tensor_record *tensors;
};

/* Bytes of the encoded form. */
size_t tdm__tensor_handles_bytes(const struct tdm__tensor_handles *handles);

/* Everything decode checks holds for what is encoded too; magic, version and header_bytes are
 * filled in.  `buffer` has tdm__tensor_handles_bytes(). */
tdm_status tdm__tensor_handles_encode(const struct tdm__tensor_handles *handles, void *buffer,
                                      size_t buffer_bytes);

/* Checks all there is to check without looking at memory: lengths, counts, reserved parts,
 * dtypes, that every tensor lies inside its storage and every storage inside its allocation.
 * TDM_E_PROTOCOL names the record and the numbers.  Free the result with tdm__tensor_handles_fini.
 */
tdm_status tdm__tensor_handles_decode(struct tdm_bytes bytes,
                                      struct tdm__tensor_handles *handles_out);
void tdm__tensor_handles_fini(struct tdm__tensor_handles *handles);

/* Before a byte is touched: TDM_E_DEVICE unless all storages are on this node and this GPU. */
tdm_status tdm__tensor_handles_check_location(const struct tdm__tensor_handles *handles,
                                              const struct tdm__id *node,
                                              const struct tdm__id *gpu);

/* TDM_E_PROTOCOL unless every tensor is one of the manifest's, with its dtype and shape; a part
 * has rows and columns instead, and the dtype that its layout asks for. */
tdm_status tdm__tensor_handles_check_manifest(const struct tdm__tensor_handles *handles,
                                              const struct tdm__manifest *manifest);

/* The view of tensor record `index`, where its storage is mapped at `storage`.  Borrows the
 * name from the manifest; both checks have passed. */
struct tdm_tensor_view tdm__tensor_handles_view(const struct tdm__tensor_handles *handles,
                                                uint32_t index,
                                                const struct tdm__manifest *manifest,
                                                const void *storage);

#endif
