/* tensor_handles.h - the wire format that describes where the tensors of a bucket lie. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_TENSOR_HANDLES_H
#define TDM_COLOCATE_WEIGHTS_TENSOR_HANDLES_H

#include "colocate/weights/manifest.h"
#include "runtime/id.h"

#include <stddef.h>
#include <stdint.h>

/* Tensor handles travel instead of tensor bytes. The wire format is one header, storages_count
 * storage records and tensors_count tensor records, without gaps. All have a fixed size, are
 * little-endian and are exactly the structs below. A storage is a range of a device allocation,
 * which a process opens with the key of the allocation's block. A tensor is a strided view into one
 * storage. */

/* Constants of the wire format and its limits. */
enum {
    TDM__TENSOR_HANDLES_MAGIC = 0x484d4454,   /* First word of the header: the characters "TDMH". */
    TDM__TENSOR_HANDLES_VERSION = 1,          /* Version of the wire format. */
    TDM__TENSOR_HANDLES_STORAGES_MAX = 1024,  /* The largest number of storage records. */
    TDM__TENSOR_HANDLES_TENSORS_MAX = 1 << 18 /* The largest number of tensor records. */
};

/* Header of the wire format: the bucket that is described and the number of records. */
struct tdm__tensor_handles_header {
    uint32_t magic;          /* TDM__TENSOR_HANDLES_MAGIC. */
    uint16_t version;        /* TDM__TENSOR_HANDLES_VERSION. */
    uint16_t header_bytes;   /* Size of this header in bytes. */
    uint32_t storages_count; /* Number of storage records, at least 1. */
    uint32_t tensors_count;  /* Number of tensor records, at least 1. */
    struct tdm__id update;   /* ID of the weight update to which the bucket belongs. */
    /* Node on which the storages lie; their keys have no meaning on another node. */
    struct tdm__id node;
    /* Epoch of the update, from 1; a later update of the model has a higher epoch. */
    uint64_t epoch;
    uint32_t bucket;        /* Index of the bucket in the update, below buckets_count. */
    uint32_t buckets_count; /* Number of buckets of the update. */
};

/* Flag of a storage record: the reader must wait for the record's event before it reads. */
enum { TDM__STORAGE_EVENT_SYNC = 1 };

/* Describes one storage: a range of bytes in a device allocation. */
struct tdm__storage_record {
    struct tdm__id gpu;        /* GPU that has the memory; see struct tdm__location. */
    struct tdm__id key;        /* Key of the allocation's block at the broker of the node. */
    uint64_t size_bytes;       /* Size of the storage in bytes. */
    uint64_t offset_bytes;     /* Offset of the storage in the allocation, in bytes. */
    uint64_t allocation_bytes; /* Size of the whole allocation in bytes. */
    uint64_t reference;        /* Number of this export, counted by the exporting process. */
    uint64_t event; /* Event that the exporter recorded after its last write; 0 if none exists. */
    uint64_t checksum;    /* Checksum of the storage; 0 if only the tensors have checksums. */
    uint32_t flags;       /* TDM__STORAGE_EVENT_SYNC or 0. */
    uint32_t reserved[3]; /* Always zero. */
};

/* Flags of a tensor record. */
enum {
    TDM__TENSOR_REQUIRES_GRAD = 1, /* The tensor is trained. Receivers ignore this flag. */
    /* The record is a rectangle of a tensor, with its place in the receiver's weights. */
    TDM__TENSOR_SLICE = 2
};

/* Describes one tensor, or one rectangle of a tensor, as a strided view into a storage. */
struct tdm__tensor_record {
    uint32_t tensor;              /* Index of the tensor in the manifest. */
    uint32_t storage;             /* Index of the storage record that contains the elements. */
    uint16_t dtype;               /* The enum tdm_dtype of the elements. */
    uint8_t dims_count;           /* Number of dimensions; 2 (rows and columns) for a rectangle. */
    uint8_t flags;                /* TDM__TENSOR_REQUIRES_GRAD and TDM__TENSOR_SLICE, or 0. */
    uint32_t reserved;            /* Always zero. */
    uint64_t shape[TDM_DIMS_MAX]; /* Elements in each dimension; unused entries are zero. */
    /* Distance between neighbours in each dimension, in elements; unused entries are zero. */
    uint64_t stride[TDM_DIMS_MAX];
    uint64_t offset; /* Index of the first element in the storage, in elements. */
    /* Checksum of the tensor's bytes as one row, or of the rows of a rectangle
     * (colocate/transfer/rect_checksum.h). */
    uint64_t checksum;
    /* For a rectangle, the offset of its first byte in the receiver's weights; zero otherwise. */
    uint64_t image;
    uint64_t reserved_tail; /* Always zero. */
};

_Static_assert(sizeof(struct tdm__tensor_handles_header) == 64, "wire format");
_Static_assert(sizeof(struct tdm__storage_record) == 96, "wire format");
_Static_assert(sizeof(struct tdm__tensor_record) == 112, "wire format");
_Static_assert(offsetof(struct tdm__tensor_handles_header, epoch) == 48, "wire format");
_Static_assert(offsetof(struct tdm__storage_record, flags) == 80, "wire format");
_Static_assert(offsetof(struct tdm__tensor_record, offset) == 80, "wire format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the structs are the wire format");

/* A decoded description of one bucket. */
struct tdm__tensor_handles {
    struct tdm__tensor_handles_header header; /* Header of the description. */
    /* Storage records, header.storages_count of them. Owned by the code that filled them in. */
    struct tdm__storage_record *storages;
    /* Tensor records, header.tensors_count of them. Owned by the code that filled them in. */
    struct tdm__tensor_record *tensors;
};

/* Returns the size of the encoded description in bytes. */
size_t tdm__tensor_handles_bytes(const struct tdm__tensor_handles *handles);

/* Encodes the description into `buffer`, which has tdm__tensor_handles_bytes() bytes. Sets magic,
 * version and header_bytes. Fails with TDM_E_PROTOCOL where tdm__tensor_handles_decode() would. */
tdm_status tdm__tensor_handles_encode(const struct tdm__tensor_handles *handles, void *buffer,
                                      size_t buffer_bytes);

/* Decodes a description and checks everything that can be checked without memory: lengths, counts,
 * reserved words, dtypes, that tensors lie inside storages and storages inside allocations. Returns
 * TDM_E_PROTOCOL with a message that names the record and the numbers. The caller releases the
 * result with tdm__tensor_handles_fini(). */
tdm_status tdm__tensor_handles_decode(struct tdm_bytes bytes,
                                      struct tdm__tensor_handles *handles_out);
/* Frees the records of a decoded description. */
void tdm__tensor_handles_fini(struct tdm__tensor_handles *handles);

/* Checks that all storages are on this node and this GPU. Returns TDM_E_DEVICE if not. The receiver
 * calls it before it touches a byte. */
tdm_status tdm__tensor_handles_check_location(const struct tdm__tensor_handles *handles,
                                              const struct tdm__id *node,
                                              const struct tdm__id *gpu);

/* Checks that every tensor is one of the manifest's, with its dtype and shape. A rectangle has rows
 * and columns instead, and the dtype that its layout asks for. Returns TDM_E_PROTOCOL if not. */
tdm_status tdm__tensor_handles_check_manifest(const struct tdm__tensor_handles *handles,
                                              const struct tdm__manifest *manifest);

/* Returns the view of tensor record `index` if its storage is mapped at address `storage`. The view
 * borrows its name from the manifest. The caller has made both checks. */
struct tdm_tensor_view tdm__tensor_handles_view(const struct tdm__tensor_handles *handles,
                                                uint32_t index,
                                                const struct tdm__manifest *manifest,
                                                const void *storage);

#endif
