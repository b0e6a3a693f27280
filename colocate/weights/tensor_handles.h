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
    TDM__TENSOR_HANDLES_MAGIC = 0x484d4454, /* First word of the header: the characters "TDMH". */
    TDM__TENSOR_HANDLES_VERSION = 3,        /* Version of the wire format of tensor handles. */
    /* The largest number of storage records in the description of one bucket. */
    TDM__TENSOR_HANDLES_STORAGES_MAX = 1024,
    /* The largest number of tensor records in the description of one bucket. */
    TDM__TENSOR_HANDLES_TENSORS_MAX = 1 << 18
};

/* Header of the wire format: the bucket that is described and the number of records. */
struct tdm__tensor_handles_header {
    uint32_t magic;          /* First word of every description: TDM__TENSOR_HANDLES_MAGIC. */
    uint16_t version;        /* Version of the wire format: TDM__TENSOR_HANDLES_VERSION. */
    uint16_t header_bytes;   /* Size of this header in bytes. */
    uint32_t storages_count; /* Number of storage records that follow, at least 1. */
    uint32_t tensors_count;  /* Number of tensor records that follow, at least 1. */
    struct tdm__id update;   /* ID of the weight update to which the bucket belongs. */
    /* ID of the node on which the storages lie; their keys have no meaning on another node. */
    struct tdm__id node;
    /* Epoch of the update, from 1; a later update of the model has a higher epoch. */
    uint64_t epoch;
    uint32_t bucket;        /* Index of the described bucket in the update, below buckets_count. */
    uint32_t buckets_count; /* Number of buckets of the whole update. */
    /* Checksum of the whole description with this field zero, so that no byte of it changes on its
     * way through other processes without being noticed. */
    uint64_t checksum;
};

/* Flag of a storage record: the reader must wait for the record's event before it reads. */
enum { TDM__STORAGE_EVENT_SYNC = 1 };

/* Describes one storage: a range of bytes in a device allocation. */
struct tdm__storage_record {
    struct tdm__id gpu; /* ID of the GPU that has the storage's memory; see struct tdm__location. */
    struct tdm__id key; /* Key with which the node's memory broker opens the allocation's block. */
    uint64_t size_bytes;       /* Size of the storage in bytes. */
    uint64_t offset_bytes;     /* Offset of the storage in its device allocation, in bytes. */
    uint64_t allocation_bytes; /* Size of the whole device allocation in bytes. */
    /* Sequence number of this description, counted by the process that made it. */
    uint64_t reference;
    /* Handle of the device event that the exporter recorded after its last write; 0 if
     * absent. */
    uint64_t event;
    uint64_t checksum; /* Checksum of the storage's bytes; 0 if only the tensors have checksums. */
    uint32_t flags;    /* TDM__STORAGE_EVENT_SYNC if the reader must wait for `event`, else 0. */
    /* Rank among the trainer ranks of the process that wrote the tensors that this storage record
     * stands for; 0 if the sender has no ranks. */
    uint32_t writer;
    uint32_t reserved[2]; /* Unused words, always zero. */
};

/* Flags of a tensor record. */
enum {
    TDM__TENSOR_REQUIRES_GRAD = 1, /* The tensor is trained. Receivers ignore this flag. */
    /* The record describes a rectangle of a tensor, with its place in the receiver's weights. */
    TDM__TENSOR_SLICE = 2
};

/* Describes one tensor, or one rectangle of a tensor, as a strided view into a storage. */
struct tdm__tensor_record {
    uint32_t tensor;  /* Index of the tensor in the manifest. */
    uint32_t storage; /* Index of the storage record whose storage contains the elements. */
    uint16_t dtype;   /* Data type of the elements, an enum tdm_dtype. */
    /* Number of dimensions of the tensor; 2 (rows and columns) for a rectangle. */
    uint8_t dims_count;
    uint8_t flags;     /* Combination of TDM__TENSOR_REQUIRES_GRAD and TDM__TENSOR_SLICE, or 0. */
    uint32_t reserved; /* Unused word, always zero. */
    /* Number of elements in each dimension; unused entries are zero. */
    uint64_t shape[TDM_DIMS_MAX];
    /* Distance between neighbours in each dimension, in elements; unused entries are zero. */
    uint64_t stride[TDM_DIMS_MAX];
    uint64_t offset; /* Index of the tensor's first element in the storage, in elements. */
    /* Checksum of the tensor's bytes as one row, or of the rows of a rectangle
     * (colocate/transfer/rect_checksum.h). */
    uint64_t checksum;
    /* Offset in bytes of a rectangle's first byte in the receiver's weights; zero for a whole
     * tensor. */
    uint64_t image;
    uint64_t reserved_tail; /* Unused word, always zero. */
};

_Static_assert(sizeof(struct tdm__tensor_handles_header) == 72, "wire format");
_Static_assert(sizeof(struct tdm__storage_record) == 96, "wire format");
_Static_assert(sizeof(struct tdm__tensor_record) == 112, "wire format");
_Static_assert(offsetof(struct tdm__tensor_handles_header, epoch) == 48, "wire format");
_Static_assert(offsetof(struct tdm__storage_record, flags) == 80, "wire format");
_Static_assert(offsetof(struct tdm__tensor_record, offset) == 80, "wire format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the structs are the wire format");

/* A decoded description of one bucket. */
struct tdm__tensor_handles {
    /* Header of the description: which bucket it describes and how many records it has. */
    struct tdm__tensor_handles_header header;
    /* Storage records, header.storages_count of them. Owned by the code that filled them in. */
    struct tdm__storage_record *storages;
    /* Tensor records, header.tensors_count of them. Owned by the code that filled them in. */
    struct tdm__tensor_record *tensors;
};

/* Returns the size in bytes of the description of a bucket when it is encoded. */
size_t tdm__tensor_handles_bytes(const struct tdm__tensor_handles *handles);

/* Encodes the description of a bucket into `buffer`, which has tdm__tensor_handles_bytes() bytes.
 * Sets magic, version and header_bytes. Fails with TDM_E_PROTOCOL where
 * tdm__tensor_handles_decode() would. */
tdm_status tdm__tensor_handles_encode(const struct tdm__tensor_handles *handles, void *buffer,
                                      size_t buffer_bytes);

/* Decodes the description of a bucket and checks everything that can be checked without memory:
 * lengths, counts, reserved words, dtypes, that tensors lie inside storages and storages inside
 * allocations. Returns TDM_E_PROTOCOL with a message that names the record and the numbers. The
 * caller releases the result with tdm__tensor_handles_fini(). */
tdm_status tdm__tensor_handles_decode(struct tdm_bytes bytes,
                                      struct tdm__tensor_handles *handles_out);
/* Frees the records of a decoded description. */
void tdm__tensor_handles_fini(struct tdm__tensor_handles *handles);

/* Checks that all storages of a description are on the node `node` and the GPU `gpu`; NULL for any
 * GPU of the node. Returns TDM_E_DEVICE if not. The receiver calls it before it touches a byte. */
tdm_status tdm__tensor_handles_check_location(const struct tdm__tensor_handles *handles,
                                              const struct tdm__id *node,
                                              const struct tdm__id *gpu);

/* Checks that every tensor record describes a tensor of the manifest with its dtype and shape. A
 * rectangle has rows and columns instead, and the dtype that its layout asks for. Returns
 * TDM_E_PROTOCOL if not. */
tdm_status tdm__tensor_handles_check_manifest(const struct tdm__tensor_handles *handles,
                                              const struct tdm__manifest *manifest);

/* Returns the view of tensor record `index` if its storage is mapped at address `storage`. The view
 * borrows its name from the manifest. The caller has called both check functions above. */
struct tdm_tensor_view tdm__tensor_handles_view(const struct tdm__tensor_handles *handles,
                                                uint32_t index,
                                                const struct tdm__manifest *manifest,
                                                const void *storage);

#endif
